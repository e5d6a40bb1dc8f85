"""Consuming: messages of queues handed to handlers, and what follows from how that ended."""
