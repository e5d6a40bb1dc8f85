"""Pull requests, for one pull and for ranges of a queue. Only `puller.Puller` and its readers send them."""
