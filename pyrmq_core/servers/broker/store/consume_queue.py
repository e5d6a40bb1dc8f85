"""The consume queue of one queue of a topic: an entry of 20 bytes for each message, at the message's queue offset.

Source: store/ConsumeQueue.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.entry_files import EntryFiles
from pyrmq_core.servers.broker.store.formats import ENTRY, FILLER_SIZE, Entry

ENTRY_BYTES: Final = ENTRY.size
FILLER_RUN: Final = 4096


class ConsumeQueue(EntryFiles):
    """The consume queue of a topic that is no batch topic: one entry for each offset from `start` to before `end`.

    The next appended message gets `next_offset`, which is at least `end`.
    """

    __slots__ = ("next_offset",)

    def __init__(self, files: Files, folder: str, file_bytes: int) -> None:
        super().__init__(files, folder, file_bytes, ENTRY_BYTES, "mappedFileSizeConsumeQueue")
        self.next_offset = 0

    def open(self) -> None:
        super().open()
        self.next_offset = self.end

    def entry(self, index: int) -> Entry:
        return Entry._make(ENTRY.unpack(self.read(index, 1)))

    def some(self, index: int, count: int) -> list[Entry]:
        return list(map(Entry._make, ENTRY.iter_unpack(self.read(index, count))))

    def entries(self, index: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Yields at most `count` entries from `index` to before `end`, as tuples with the fields of `Entry`."""
        stop = min(index + count, self.end)
        if index >= stop:
            return iter(())
        data = self.read(index, stop - index)
        while (index_read := index + len(data) // ENTRY_BYTES) < stop:
            data += self.read(index_read, stop - index_read)
        return ENTRY.iter_unpack(data)

    def append(self, index: int, entries: bytes) -> None:
        """Writes packed entries from the queue offset `index` on.

        If `index` is beyond the end, the gap is filled with fillers, which are entries without a message.
        """
        if index > self.end:
            self._fill(index)
        self.write(index, entries)
        self.next_offset = max(self.next_offset, self.end)

    def holds(self, index: int, entry: bytes) -> bool:
        return index >= self.start and self.read(index, 1) == entry

    def cut(self, end: int) -> None:
        super().cut(end)
        self.next_offset = end

    def remove(self) -> None:
        super().remove()
        self.next_offset = 0

    def _fill(self, index: int) -> None:
        if not self._opened:
            self.end = index - index % (self._file_bytes // ENTRY_BYTES)
            self.start = index
        log_offset = self.entry(self.end - 1).physical_offset if self.end > self.start else 0
        filler = ENTRY.pack(log_offset, FILLER_SIZE, 0)
        while self.end < index:
            count = min(FILLER_RUN, index - self.end)
            self.write(self.end, filler * count)
