"""One send: the choice of its queue, its tries and its errors. Only `sender.Sender` sends these requests."""
