"""Calls to servers for a client: connections, signatures, hooks, heartbeats, and the versions of servers."""
