"""The opening of a log's or a queue's files, which are named after the offset of their first byte."""

from __future__ import annotations

from pyrmq_core.broker.store.disk.files import Files, StoredFile
from pyrmq_core.broker.store.formats import file_offset
from pyrmq_core.errors import StoreError


def open_all(files: Files, folder: str, file_bytes: int, setting: str) -> dict[int, StoredFile]:
    """Returns the files of a folder by the offset of their first byte, which is their name, ascending.

    An empty last file was never begun and is removed. For another length than `file_bytes`, which `setting` sets, it
    raises `StoreError`.
    """
    names = [name for name in files.names(folder) if file_offset(name) is not None]
    if names and not files.size(f"{folder}/{names[-1]}"):
        files.remove(f"{folder}/{names.pop()}")
    opened = {}
    for name in names:
        path = f"{folder}/{name}"
        if (size := files.size(path)) != file_bytes:
            raise StoreError(
                f"{path} has {size} bytes and {setting} is {file_bytes}; set it as it was when the store was made"
            )
        opened[int(name)] = files.open(path, file_bytes)
    return opened
