"""One send: the choice of its queue, its tries and its errors. Only `sender.Sender` makes send requests."""
