"""Offsets of a group: where a queue starts, how far it is consumed, and the broker or file that stores it."""
