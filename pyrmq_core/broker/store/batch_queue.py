"""One queue of a batch topic: an entry of 46 bytes for each record, which holds one message or a whole batch.

    entry                      bytes
    commit-log offset          8
    record size                4
    tags code                  8      of the record's own TAGS, 0 without
    store time                 8      ms
    offset of its first message 8
    messages                   2      1 for a single one
    compacted offset           4      -1
    reserved                   4      0

Entries are found by a search for the offset: they stand in its order. Source: store/queue/BatchConsumeQueue.java
(5.4.0).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyrmq_core.broker.store.entry_files import EntryFiles
from pyrmq_core.broker.store.files import Files
from pyrmq_core.broker.store.formats import ENTRY

BATCH_ENTRY: Final = struct.Struct(">qiqqqhii")
BATCH_ENTRY_BYTES: Final = BATCH_ENTRY.size
NOT_COMPACTED: Final = -1


class BatchEntry(NamedTuple):
    """One entry of a batch topic's queue."""

    physical_offset: int
    size: int
    tags_code: int
    store_ms: int
    base: int
    inner_num: int

    @property
    def is_valid(self) -> bool:
        return self.size > 0 and self.physical_offset >= 0 and self.inner_num > 0

    @property
    def is_filler(self) -> bool:
        """There are none: offsets need no place here."""
        return False

    @property
    def is_leading_filler(self) -> bool:
        return False

    @property
    def end(self) -> int:
        """The offset after its last message."""
        return self.base + self.inner_num

    def pack(self) -> bytes:
        return BATCH_ENTRY.pack(*self, NOT_COMPACTED, 0)


class BatchSlots(EntryFiles):
    """The entries by their number."""

    __slots__ = ()

    def entry(self, number: int) -> BatchEntry:
        return BatchEntry._make(BATCH_ENTRY.unpack(self.read(number, 1))[:6])


class BatchConsumeQueue:
    """Messages from `start` up to, but without, `end`; `next_offset` is what the next one gets, `end` or more."""

    __slots__ = ("end", "next_offset", "slots", "start")

    def __init__(self, files: Files, folder: str, file_bytes: int) -> None:
        self.slots = BatchSlots(files, folder, file_bytes, BATCH_ENTRY_BYTES, "mapperFileSizeBatchConsumeQueue")
        self.start = self.end = self.next_offset = 0

    def open(self) -> None:
        """Finds the files; `settle` tells the offsets, when recovery knows where the entries end."""
        self.slots.open()

    def settle(self) -> None:
        """Takes the offsets from the entries."""
        slots = self.slots
        self.start = slots.entry(slots.start).base if slots.start < slots.end else 0
        self.end = self.next_offset = slots.entry(slots.end - 1).end if slots.start < slots.end else 0

    def number_of(self, offset: int) -> int:
        """The number of the entry that holds the message at `offset`; of the next one where none does."""
        low, high = self.slots.start, self.slots.end
        while low < high:
            middle = (low + high) // 2
            if self.slots.entry(middle).end <= offset:
                low = middle + 1
            else:
                high = middle
        return low

    def entry(self, offset: int) -> BatchEntry:
        """The entry of the record that holds the message at a readable offset."""
        return self.slots.entry(self.number_of(offset))

    def entries(self, offset: int) -> Iterator[BatchEntry]:
        """Those from the one that holds `offset`."""
        for number in range(self.number_of(offset), self.slots.end):
            yield self.slots.entry(number)

    def append(self, index: int, entries: bytes) -> None:
        """Writes entries of messages from `index` on, which is `end` unless older messages are gone."""
        if self.slots.start == self.slots.end:
            self.start = index
        self.slots.write(self.slots.end, entries)
        self.end = self.slots.entry(self.slots.end - 1).end
        self.next_offset = max(self.next_offset, self.end)

    def holds(self, index: int, entry: bytes) -> bool:
        """Whether this very entry is that of the message at an offset."""
        return index >= self.start and self.slots.read(self.number_of(index), 1) == entry

    def cut(self, end: int) -> None:
        """Ends the queue before the record that holds the message at `end`."""
        self.slots.cut(self.number_of(end))
        self.settle()

    def unsynced(self) -> list[Callable[[], None]]:
        """What to call (in any thread) so that all entries written so far are on the medium."""
        return self.slots.unsynced()

    def synced(self) -> None:
        """The calls of `unsynced` have returned."""
        self.slots.synced()

    def remove(self) -> None:
        """Begins anew, without files."""
        self.slots.remove()
        self.settle()


def plain_entries(entries: bytes) -> bytes:
    """The same as those of plain queues, which begin alike: for who wants to know what came."""
    return b"".join([entries[at : at + ENTRY.size] for at in range(0, len(entries), BATCH_ENTRY_BYTES)])
