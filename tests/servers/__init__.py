"""Tests of the servers' wing."""
