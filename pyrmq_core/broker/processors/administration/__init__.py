"""Requests of administrators' tools: figures, settings while it runs, lists, look-ups, groups."""
