"""Sends many messages at once: send windows, automatic batching, lists split by size, and Arrow tables."""
