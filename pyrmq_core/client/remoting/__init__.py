"""Calls to servers on behalf of a client: connections, signatures, hooks, heartbeats and the versions they report."""
