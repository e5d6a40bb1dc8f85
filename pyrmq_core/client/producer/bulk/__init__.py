"""Sends many messages at once: lists, Arrow tables, automatic batches, and windows that limit open requests."""
