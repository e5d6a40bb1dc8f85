"""Background work on the store: `flush` syncs it to the disk, `retention` removes old segments and watches the disk.

`key_indexing` keeps the index of keys up with it. `unread` finds messages of the broker's own topics that were
removed too early.
"""
