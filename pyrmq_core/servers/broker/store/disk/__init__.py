"""The store's files: `files` is the interface of a directory, and `disk_files` a directory on a disk.

`descriptors` keeps few files open. `paths` refuses names that lead out of the store.
"""
