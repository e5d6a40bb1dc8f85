"""Frames and their headers: commands, codes, both header encodings, typed header fields."""
