"""Decodes the records of pulls to Arrow record batches. `decode` has the entry points.

They use one of three decoders: `compiled` in pyrmq-native, `decode_by_row` for few messages, or else one that builds
whole columns. For this `record_bounds` finds where records begin, `records` splits them into vectors (`rows`) and
checks bodies, `batch_messages` replaces batch records by the messages inside them, and `decompression` decompresses
bodies. `properties` builds the columns of properties, and `layouts` does so faster if most messages have the same
property names. `columns` lists the possible columns, and has the type of a decoded batch. `body_matches` searches
bodies.
"""
