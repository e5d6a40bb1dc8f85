"""Tests of the tools' wing."""
