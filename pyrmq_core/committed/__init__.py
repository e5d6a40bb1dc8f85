"""Committed delivery: the records that a write adds to a topic's manifest, and which of them count. Pure.

`records` has the records as values and bytes, `deciding` the rule that the first record of a batch counts.
"""
