"""Tests of connections: two ends joined in memory, then real sockets on loopback."""
