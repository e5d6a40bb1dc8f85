"""Pull requests: single pulls, and reads of ranges of a queue. Only `puller.Puller` and its readers send them."""
