"""Background work on the store: `flush` syncs it, `retention` removes old segments, `key_indexing` indexes it."""
