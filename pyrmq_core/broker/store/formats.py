"""The store's files but for the records: names, the blank at a segment's end, queue entries, the checkpoint.

    consume queue entry        bytes
    commit-log offset          8
    record size                4
    tags code                  8      Java hash of TAGS, 0 without; the delivery time in SCHEDULE_TOPIC_XXXX

    checkpoint                 bytes  all times are store times in ms
    log flushed to             8
    queues flushed to          8
    index flushed to           8
    slave flushed offset       8
    confirmed offset           8
    mark                       8      ours: `PYRMQ\\0\\0\\3`, then
    safe offset                8      log and queues are on the medium up to here
    queues                     4      how many queues have entries then
    entries                    8      how many entries these have before the safe offset, each counted from 0
    CRC                        4      CRC-32 of all before: who changes anything else takes the mark's word away
    zeros                      to 4096

Sources: store/MappedFileQueue.java, CommitLog.java, ConsumeQueue.java, StoreCheckpoint.java (5.4.0).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from pyrmq_core.protocol.messages.record import BLANK_MAGIC, HEAD

NAME_DIGITS: Final = 20
ENTRY: Final = struct.Struct(">qiq")
# Stands before the first entry of a queue whose older messages were gone when it was built, and in its middle where a
# record cannot be read: there with the place of the entry before, so that places ascend.
FILLER_SIZE: Final = 0x7FFFFFFF
FILLER: Final = ENTRY.pack(0, FILLER_SIZE, 0)
CHECKPOINT: Final = struct.Struct(">qqqqq8sqiq")
CHECKPOINT_CRC: Final = struct.Struct(">I")
CHECKPOINT_BYTES: Final = 4096
CHECKPOINT_MARK: Final = b"PYRMQ\0\0\3"
MARK_WITHOUT_ENTRIES: Final = b"PYRMQ\0\0\2"  # of earlier versions, with no CRC either
# What the queues' and the log's flush times may differ by (StoreCheckpoint.getMinTimestamp).
CHECKPOINT_MARGIN_MS: Final = 3000


class Entry(NamedTuple):
    """One entry of a consume queue."""

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
        """Stands before the first entry."""
        return self.is_filler and self.physical_offset == 0


def file_name(offset: int) -> str:
    """A file is named for the offset of its first byte."""
    return f"{offset:0{NAME_DIGITS}d}"


def file_offset(name: str) -> int | None:
    """The offset a name stands for; None for a file that is none of ours."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None


def blank_record(left: int) -> bytes:
    """Closes a segment that has `left` bytes, more than the next record leaves room for."""
    return HEAD.pack(left, BLANK_MAGIC)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is known to be on the medium; `safe_offset`, `queues` and `entries` are ours alone: else None, 0 and 0."""

    log_time_ms: int = 0
    queue_time_ms: int = 0
    index_time_ms: int = 0
    slave_offset: int = 0
    confirmed_offset: int = 0
    safe_offset: int | None = None
    queues: int = 0
    entries: int = 0

    @property
    def safe_time_ms(self) -> int:
        """Everything stored before is in log and queues."""
        return max(0, min(self.log_time_ms, self.queue_time_ms) - CHECKPOINT_MARGIN_MS)

    def encode(self) -> bytes:
        mark = b"" if self.safe_offset is None else CHECKPOINT_MARK
        fields = CHECKPOINT.pack(
            self.log_time_ms,
            self.queue_time_ms,
            self.index_time_ms,
            self.slave_offset,
            self.confirmed_offset,
            mark,
            self.safe_offset or 0,
            self.queues,
            self.entries,
        )
        return (fields + CHECKPOINT_CRC.pack(zlib.crc32(fields))).ljust(CHECKPOINT_BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes | None) -> Self:
        """A missing or short one knows nothing, and the log is read from its start."""
        if data is None or len(data) < CHECKPOINT.size + CHECKPOINT_CRC.size:
            return cls()
        *times, mark, safe, queues, entries = CHECKPOINT.unpack_from(data)
        (crc,) = CHECKPOINT_CRC.unpack_from(data, CHECKPOINT.size)
        known = cls(*times)
        if mark == MARK_WITHOUT_ENTRIES and not entries and not crc:
            return replace(known, safe_offset=safe, queues=queues)
        if mark != CHECKPOINT_MARK or crc != zlib.crc32(data[: CHECKPOINT.size]):
            return known
        return replace(known, safe_offset=safe, queues=queues, entries=entries)
