"""One queue of one topic: an entry of 20 bytes for each message, at the message's queue offset.

Files are named for the byte offset of their first entry. Entries are found by their place alone, so behind the end
there are zeros and nothing else: bytes of entries once dropped would count as messages again when the log has grown
past what they point to. Source: store/ConsumeQueue.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pyrmq_core.broker.store.files import Files, StoredFile
from pyrmq_core.broker.store.formats import ENTRY, FILLER, Entry, file_name, file_offset
from pyrmq_core.errors import StoreError

ENTRY_BYTES: Final = ENTRY.size
FILLER_RUN: Final = 4096


class ConsumeQueue:
    """Entries from `start` up to, but without, `end`; `next_offset` is what the next message gets, `end` or more."""

    __slots__ = ("_file_bytes", "_files", "_folder", "_opened", "_unsynced", "end", "next_offset", "start")

    def __init__(self, files: Files, folder: str, file_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._file_bytes = -(-file_bytes // ENTRY_BYTES) * ENTRY_BYTES  # a multiple, as RocketMQ rounds it
        self._opened: dict[int, StoredFile] = {}  # by the byte offset of their first entry, ascending
        self._unsynced: set[int] = set()
        self.start = self.end = self.next_offset = 0

    def open(self) -> None:
        """Finds the files; `end` is the end of the last one until `end_at` is told. `StoreError` for other lengths."""
        names = [name for name in self._files.names(self._folder) if file_offset(name) is not None]
        if names and not self._files.size(self._path(names[-1])):
            self._files.remove(self._path(names.pop()))
        for name in names:
            size = self._files.size(self._path(name))
            if size != self._file_bytes:
                raise StoreError(
                    f"{self._path(name)} has {size} bytes and mappedFileSizeConsumeQueue is {self._file_bytes}; "
                    "set it as it was when the store was made"
                )
            self._opened[int(name)] = self._files.open(self._path(name), self._file_bytes)
        self.start = next(iter(self._opened), 0) // ENTRY_BYTES
        self.end = self.next_offset = (max(self._opened, default=-self._file_bytes) + self._file_bytes) // ENTRY_BYTES

    def entry(self, index: int) -> Entry:
        """The entry at a queue offset between the first file's beginning and the last one's end."""
        return Entry._make(ENTRY.unpack(self.read(index, 1)))

    def read(self, index: int, count: int) -> bytes:
        """The bytes of `count` entries, or of fewer where a file ends."""
        position = index * ENTRY_BYTES
        base = position - position % self._file_bytes
        file = self._opened.get(base)
        if file is None:
            raise StoreError(f"{self._folder} holds no entry {index}")
        return file.read(position - base, min(count * ENTRY_BYTES, base + self._file_bytes - position))

    def entries(self, index: int, count: int) -> Iterator[tuple[int, int, int]]:
        """At most `count` entries from `index` up to the end of what is kept: the fields of `Entry`, plain."""
        stop = min(index + count, self.end)
        if index >= stop:
            return iter(())
        data = self.read(index, stop - index)
        while (index_read := index + len(data) // ENTRY_BYTES) < stop:
            data += self.read(index_read, stop - index_read)
        return ENTRY.iter_unpack(data)

    def append(self, index: int, entries: bytes) -> None:
        """Writes entries from `index` on, which is `end` unless older messages are gone: then fillers precede them."""
        if index > self.end:
            self._fill(index)
        position, rest = index * ENTRY_BYTES, memoryview(entries)
        while rest:
            base = position - position % self._file_bytes
            part = rest[: base + self._file_bytes - position]
            self._file(base).write(position - base, bytes(part))
            self._unsynced.add(base)
            position, rest = position + len(part), rest[len(part) :]
        self.end = max(self.end, position // ENTRY_BYTES)
        self.next_offset = max(self.next_offset, self.end)

    def cut(self, end: int) -> None:
        """Ends the queue at `end`: what lies behind becomes zeros, newer files are removed."""
        position = end * ENTRY_BYTES
        for base in [base for base in self._opened if base >= position and base > next(iter(self._opened))]:
            del self._opened[base]
            self._unsynced.discard(base)
            self._files.remove(self._path(file_name(base)))
        base = position - position % self._file_bytes
        if base in self._opened:
            self._opened[base].zero_from(position - base)
            self._unsynced.add(base)
        self.end = self.next_offset = end
        self.start = min(self.start, end)

    def unsynced(self) -> list[Callable[[], None]]:
        """What to call (in any thread) so that all entries written so far are on the medium."""
        syncs = [self._opened[base].sync for base in self._unsynced]
        self._unsynced.clear()
        return syncs

    def remove(self) -> None:
        """Its topic is deleted."""
        self._files.remove(self._folder)
        self._opened.clear()
        self._unsynced.clear()
        self.start = self.end = self.next_offset = 0

    def _fill(self, index: int) -> None:
        """The file that holds `index` begins the queue; fillers stand before `index`, or in the hole behind the end."""
        if not self._opened:
            self.end = index - index % (self._file_bytes // ENTRY_BYTES)
            self.start = index
        while self.end < index:
            count = min(FILLER_RUN, index - self.end)
            self.append(self.end, FILLER * count)

    def _file(self, base: int) -> StoredFile:
        file = self._opened.get(base)
        if file is None:
            file = self._opened[base] = self._files.open(self._path(file_name(base)), self._file_bytes)
        return file

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
