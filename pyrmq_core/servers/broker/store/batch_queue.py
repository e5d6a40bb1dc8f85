"""One queue of a batch topic: an entry of 46 bytes for each record, which has one message or all messages of a batch.

    entry                          bytes
    commit-log offset              8
    record size                    4
    tags code                      8      of the record's own TAGS, 0 without
    store time                     8      ms
    offset of its first message    8
    messages                       2      1 for a single message
    compacted offset               4      -1
    reserved                       4      0

Entries are in the order of their offsets and are found by binary search. Source: store/queue/BatchConsumeQueue.java
(5.4.0).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.entry_files import EntryFiles
from pyrmq_core.servers.broker.store.formats import ENTRY

BATCH_ENTRY: Final = struct.Struct(">qiqqqhii")
BATCH_ENTRY_BYTES: Final = BATCH_ENTRY.size
NOT_COMPACTED: Final = -1


class BatchEntry(NamedTuple):
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
        return False

    @property
    def is_leading_filler(self) -> bool:
        return False

    @property
    def end(self) -> int:
        return self.base + self.inner_num

    def pack(self) -> bytes:
        return BATCH_ENTRY.pack(*self, NOT_COMPACTED, 0)


class BatchSlots(EntryFiles):
    __slots__ = ()

    def entry(self, number: int) -> BatchEntry:
        return _unpacked(self.read(number, 1))

    def some(self, number: int, count: int) -> list[BatchEntry]:
        return [BatchEntry._make(fields[:6]) for fields in BATCH_ENTRY.iter_unpack(self.read(number, count))]


class BatchConsumeQueue:
    """The consume queue of a batch topic, in which one entry may stand for a record with several messages.

    Its queue offsets begin at `start` and end before `end`. The next appended message gets `next_offset`.
    """

    __slots__ = ("end", "next_offset", "slots", "start")

    def __init__(self, files: Files, folder: str, file_bytes: int) -> None:
        self.slots = BatchSlots(files, folder, file_bytes, BATCH_ENTRY_BYTES, "mapperFileSizeBatchConsumeQueue")
        self.start = self.end = self.next_offset = 0

    @property
    def log_start(self) -> int:
        return self.slots.log_start

    def open(self) -> None:
        """Opens the files. The offsets stay 0 until recovery has found the last entry and calls `settle`."""
        self.slots.open()

    def settle(self) -> None:
        slots = self.slots
        self.end = self.next_offset = slots.entry(slots.end - 1).end if slots.first < slots.end else 0
        self.start = slots.entry(slots.start).base if slots.start < slots.end else self.end

    def number_of(self, offset: int) -> int:
        """Returns the number of the entry whose record contains the message at a queue offset.

        Entries are numbered from 0 in the order of the files. If no entry contains the message, this is the number of
        the next later entry, or the end of the entries.
        """
        low, high = self.slots.start, self.slots.end
        while low < high:
            middle = (low + high) // 2
            if self.slots.entry(middle).end <= offset:
                low = middle + 1
            else:
                high = middle
        return low

    def entry(self, offset: int) -> BatchEntry:
        return self.slots.entry(self.number_of(offset))

    def entries(self, offset: int) -> Iterator[BatchEntry]:
        for number in range(self.number_of(offset), self.slots.end):
            yield self.slots.entry(number)

    def append(self, index: int, entries: bytes) -> None:
        """Appends packed entries to the queue's files. The first entry begins at the queue offset `index`.

        `index` is `end`, or a higher offset if the messages between were removed.
        """
        if self.slots.start == self.slots.end:
            self.start = index
        self.slots.write(self.slots.end, entries)
        self.end = _unpacked(entries[-BATCH_ENTRY_BYTES:]).end
        self.next_offset = max(self.next_offset, self.end)

    def holds(self, index: int, entry: bytes) -> bool:
        return index >= self.start and self.slots.read(self.number_of(index), 1) == entry

    def cut(self, end: int) -> None:
        self.slots.cut(self.number_of(end))
        self.settle()

    def unsynced(self) -> list[Callable[[], None]]:
        return self.slots.unsynced()

    def synced(self) -> None:
        self.slots.synced()

    def remove(self) -> None:
        self.slots.remove()
        self.settle()


def _unpacked(entry: bytes) -> BatchEntry:
    return BatchEntry._make(BATCH_ENTRY.unpack(entry)[:6])


def as_consume_queue_entries(entries: bytes) -> bytes:
    return b"".join([entries[at : at + ENTRY.size] for at in range(0, len(entries), BATCH_ENTRY_BYTES)])
