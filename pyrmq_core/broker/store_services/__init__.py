"""Background work on the store: `flush` syncs it to the disk.

Not built: the removal of old segments (`clean_expired`).
"""
