"""Tests of the `pyrmq` command."""
