"""Pulls to record batches: `decode` is the entry, `decode_by_row` its loop over messages, `decoded_batch` its result.

`columns` lists the columns of a read. `record_bounds` finds where records begin, `records` splits them into `rows`, and
`batch_messages` those of batch topics; `even_runs` copies parts of messages of one size. `body_crcs` checks bodies,
`plain_bodies` decompresses them. `properties` and `hosts` build the columns of text; `property_layout` finds the pairs
of properties that all messages have alike.
"""
