"""Requests of administrators' tools: figures, changes of settings, lists, look-ups, groups and access control."""
