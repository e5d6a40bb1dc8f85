"""Background work on the store: `flush` syncs it to the disk, `retention` removes old segments and watches the disk.

`key_indexing` keeps the index of keys up with it.
"""
