"""Decodes the answers of pull requests to Arrow record batches. `decode` has the entry points.

There are three decoders: `compiled` in pyrmq-native, `decode_by_row` for few messages, and one that builds whole
columns. The last has these parts: `record_bounds` finds where records begin, `records` splits them into vectors
(`rows`) and checks bodies, `batch_messages` replaces batch records by the messages inside them, and `decompression`
decompresses bodies. `properties` builds the columns of properties, and `layouts` does so faster if most messages have
the same property names.

`columns` lists the possible columns. `body_matches` searches bodies.
"""
