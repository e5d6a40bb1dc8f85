"""Pulls to record batches: `decode` is the entry, `decode_by_row` its loop over messages.

`columns` lists the columns of a read, and has the batch of them. `record_bounds` finds where records begin, `records`
splits them into `rows` and checks bodies, `batch_messages` splits batch records. `decompression` decompresses bodies.
`properties` builds the columns of text; `layouts` does so where few lists of names occur.
"""
