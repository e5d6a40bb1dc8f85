"""Sends of one payload: the choice of a queue, tries and errors. Only `sender.Sender` sends these requests."""
