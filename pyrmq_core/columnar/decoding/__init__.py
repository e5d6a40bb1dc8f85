"""Pulls to record batches: `decode` chooses between columns and `decode_by_row`, and yields `decoded_batch`es.

`columns` lists the columns of a read. `record_bounds` finds where records begin, `records` splits them into spans,
`plain_bodies` decompresses bodies, `properties` and `hosts` build the columns of text.
"""
