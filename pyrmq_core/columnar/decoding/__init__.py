"""Decodes pulls to record batches: `decode` has the entry points, `decode_by_row` the plain loop over messages.

`columns` lists the possible columns, and has the type of a decoded batch. `record_bounds` finds where records begin,
`records` splits them into `rows` and checks bodies, `batch_messages` splits batch records. `decompression` decompresses
bodies. `properties` builds the columns of text, and `layouts` does so for properties with few lists of names.
"""
