"""Tests of bytes and values: no loop, no socket."""
