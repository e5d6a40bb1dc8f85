"""The store's files: `files` is the interface of a directory, and `disk_files` a directory on a disk.

`descriptors` limits the number of open files. `paths` refuses names that lead out of the store.
"""
