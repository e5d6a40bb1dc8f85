"""Requests of administrators' tools: figures, changes of settings, lists, look-ups and groups."""
