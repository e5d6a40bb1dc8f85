"""One send: its queue, its tries, its errors. `sender.Sender` is the only caller of the send requests."""
