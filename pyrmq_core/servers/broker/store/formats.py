"""The formats of the store's files, except records: file names, the blank record at a segment's end, queue entries.

    consume queue entry        bytes
    commit-log offset          8
    record size                4
    tags code                  8      Java hash of TAGS, 0 without, the delivery time in SCHEDULE_TOPIC_XXXX

Sources: store/MappedFileQueue.java, CommitLog.java, ConsumeQueue.java (5.4.0).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pyrmq_core.protocol.messages.record import BLANK_MAGIC, HEAD

NAME_DIGITS: Final = 20
ENTRY: Final = struct.Struct(">qiq")
# The size field of a filler, an entry without a record. Fillers replace messages that were removed before the queue was
# rebuilt, and unreadable records. The latter have the log offset of the entry before, so that log offsets ascend.
FILLER_SIZE: Final = 0x7FFFFFFF
FILLER: Final = ENTRY.pack(0, FILLER_SIZE, 0)


class Entry(NamedTuple):
    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_valid(self) -> bool:
        return self.size > 0 and self.physical_offset >= 0

    @property
    def is_filler(self) -> bool:
        return self.size == FILLER_SIZE

    @property
    def is_leading_filler(self) -> bool:
        return self.is_filler and self.physical_offset == 0


def file_name(offset: int) -> str:
    return f"{offset:0{NAME_DIGITS}d}"


def file_offset(name: str) -> int | None:
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None


def blank_record(left: int) -> bytes:
    """Returns the head of the blank record that fills the last `left` bytes of a segment."""
    return HEAD.pack(left, BLANK_MAGIC)


class Mark(NamedTuple):
    """A point in the commit log up to which the store is synced, or is being synced: the log offset `end`.

    `entries` is the number of entries that all queues have for messages before `end`. `deletions` is the number of
    deletions of queues so far. When the store has a higher number, the mark is outdated.
    """

    end: int
    entries: int
    deletions: int


class IndexMark(NamedTuple):
    """The progress of the key index in the checkpoint: its newest file that is full and synced.

    `file` is the number in that file's name, and `store_ms` the store time of its last message. `file` is None if no
    file is full and synced, or if RocketMQ wrote the checkpoint, which has only the time.
    """

    file: int | None
    store_ms: int
