"""Consuming: passing messages of queues to handlers, and settling the messages afterwards."""
