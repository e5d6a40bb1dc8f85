"""Committed delivery: batches of messages that readers see in full or not at all.

A batch is committed by a message in another topic, the manifest. `records` has these commit records as values and
bytes. `deciding` has the rule that only the first record of a batch is valid. `ranges` has the messages of batches.
"""
