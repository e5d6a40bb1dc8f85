"""Tests of the broker: its store against plain lists and power cuts, its answers against recorded ones."""
