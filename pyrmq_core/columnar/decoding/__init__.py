"""Pulls to record batches: `decode` is the entry, `decode_by_row` its loop over messages.

`columns` lists the columns of a read, and has the batch of them. `record_bounds` finds where records begin, `records`
splits them into `rows`, and `batch_messages` those of batch topics. `body_crcs` checks bodies, `decompression`
decompresses them. `properties` builds the columns of text; `uniform_properties` finds the pairs of properties that are
uniform. Messages are uniform if each part has the same length in all of them.
"""
