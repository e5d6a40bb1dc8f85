"""The files of consume queues: entries of one length, in files of one length.

Files are named after the byte offset of their first entry. All bytes after the last entry must be zeros. Otherwise an
entry that recovery removed would look valid again, once the log has other bytes at its offset. Source:
store/MappedFileQueue.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.files import Files, StoredFile
from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.store.layout import open_all


class EntryFiles:
    """Queue entries of `entry_bytes` each, numbered from `start` to before `end`, in files below `folder`.

    The files' length is `file_bytes`, rounded up to complete entries. `file_setting` is RocketMQ's name of that
    setting, for error messages.
    """

    __slots__ = (
        "_entry_bytes",
        "_file_bytes",
        "_file_setting",
        "_files",
        "_folder",
        "_opened",
        "_syncing",
        "_unsynced",
        "end",
        "log_start",
        "start",
    )

    def __init__(self, files: Files, folder: str, file_bytes: int, entry_bytes: int, file_setting: str) -> None:
        self._files = files
        self._folder = folder
        self._entry_bytes = entry_bytes
        self._file_bytes = -(-file_bytes // entry_bytes) * entry_bytes  # rounded up, as in RocketMQ
        self._file_setting = file_setting
        self._opened: dict[int, StoredFile] = {}  # by the byte offset of their first entry, ascending
        self._unsynced: set[int] = set()
        self._syncing: set[int] = set()  # files whose sync `unsynced` returned, until `synced` is called
        self.start = self.end = 0
        self.log_start = 0  # the log's start for which `start` was computed

    @property
    def first(self) -> int:
        return next(iter(self._opened), 0) // self._entry_bytes

    @property
    def stored_bytes(self) -> int:
        return (self.end - self.first) * self._entry_bytes

    def open(self) -> None:
        """Opens the queue's files. Raises `StoreError` for a file of the wrong length.

        `end` is then the end of the last file, until recovery calls `cut` with the end of the valid entries.
        """
        self._opened = open_all(self._files, self._folder, self._file_bytes, self._file_setting)
        self.start = self.first
        self.end = (max(self._opened, default=-self._file_bytes) + self._file_bytes) // self._entry_bytes

    def is_complete(self, *, from_first: bool) -> bool:
        """Returns True if the files follow one another without a gap and, with `from_first`, begin at offset 0."""
        first = next(iter(self._opened), 0)
        expected = range(first, first + len(self._opened) * self._file_bytes, self._file_bytes)
        return list(self._opened) == list(expected) and not (from_first and first)

    def read(self, index: int, count: int) -> bytes:
        position = index * self._entry_bytes
        base = position - position % self._file_bytes
        file = self._opened.get(base)
        if file is None:
            raise StoreError(f"{self._folder} holds no entry {index}")
        return file.read(position - base, min(count * self._entry_bytes, base + self._file_bytes - position))

    def write(self, index: int, entries: bytes) -> None:
        position, unwritten = index * self._entry_bytes, entries
        while unwritten:
            base = position - position % self._file_bytes
            part = unwritten[: base + self._file_bytes - position]  # a slice of all bytes is no copy
            self._file(base).write(position - base, part)
            self._unsynced.add(base)
            position, unwritten = position + len(part), unwritten[len(part) :]
        self.end = max(self.end, position // self._entry_bytes)

    def cut(self, end: int) -> None:
        """Removes the entries from number `end` on: zeros them in the file of `end`, and deletes all later files.

        The first file is never deleted.
        """
        position = end * self._entry_bytes
        for base in [base for base in self._opened if base >= position and base > next(iter(self._opened))]:
            del self._opened[base]
            self._unsynced.discard(base)
            self._syncing.discard(base)
            self._files.remove(self._path(file_name(base)))
        base = position - position % self._file_bytes
        if base in self._opened:
            self._opened[base].zero_from(position - base)
            self._unsynced.add(base)
        self.end = end
        self.start = min(self.start, end)

    def unsynced(self) -> list[Callable[[], None]]:
        """Returns functions that sync all entries written so far, in any thread. The caller then calls `synced`."""
        self._syncing |= self._unsynced
        self._unsynced.clear()
        return [self._opened[base].sync for base in self._syncing]

    def synced(self) -> None:
        self._syncing.clear()

    def retire_files(self) -> list[Callable[[], None]]:
        """Drops the files whose entries are all before `start`, but never the last file.

        Returns functions that delete the files from the disk, to be called in the order of the list.
        """
        retired = [
            base for base in list(self._opened)[:-1] if base + self._file_bytes <= self.start * self._entry_bytes
        ]
        for base in retired:
            del self._opened[base]
            self._unsynced.discard(base)
            self._syncing.discard(base)
        return [self._files.retire(self._path(file_name(base))) for base in retired]

    def remove(self) -> None:
        self._files.remove(self._folder)
        self._opened.clear()
        self._unsynced.clear()
        self._syncing.clear()
        self.start = self.end = 0

    def _file(self, base: int) -> StoredFile:
        file = self._opened.get(base)
        if file is None:
            file = self._opened[base] = self._files.open(self._path(file_name(base)), self._file_bytes, sync_name=False)
        return file

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
