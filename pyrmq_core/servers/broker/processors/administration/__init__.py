"""Requests of administrators' tools: statistics, changes of settings, lists, look-ups, groups and access control."""
