"""Committed delivery: what a write lists in its topic's manifest, and which records of a manifest count. Pure.

`records` are the values and their bytes, `deciding` the rule that the first record of a writer's batch wins.
"""
