"""Decisions about routes as pure functions and values: queues of a route, and the choice of a NameServer."""
