"""Sends many messages at once: send windows, automatic batching, divided lists, and Arrow tables."""
