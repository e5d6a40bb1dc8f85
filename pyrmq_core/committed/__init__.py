"""Committed delivery: the records by which a write commits batches of messages. Pure.

A commit record is a message in the topic's manifest, another topic. `records` has the records as values and bytes,
`deciding` the rule that only the first record of a batch counts, and `ranges` the messages that batches consist of.
"""
