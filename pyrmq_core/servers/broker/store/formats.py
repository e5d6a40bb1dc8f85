"""The formats of the store's files, except records: names, a segment's blank end, queue entries, the checkpoint.

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
    mark                       8      `PYRMQ\\0\\0\\5`; this and the next six are not RocketMQ's
    safe offset                8      log and queues are synced up to here
    queues                     4      number of queues with entries
    entries                    8      number of their entries before the safe offset, of each queue from 0 on
    log start                  8      the log was removed up to here; missing bytes after it are lost
    index file                 8      the name, a number, of the newest file of the index that is full and synced
    CRC                        4      CRC-32 of all fields before: another broker's change makes the mark invalid
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
# The size in a filler, an entry without a record. Fillers precede the first entry of a queue that was built after its
# older messages were removed, and replace entries of unreadable records. The latter have the log offset of the entry
# before, so that offsets ascend.
FILLER_SIZE: Final = 0x7FFFFFFF
FILLER: Final = ENTRY.pack(0, FILLER_SIZE, 0)
CHECKPOINT: Final = struct.Struct(">qqqqq8sqiqqq")
NO_FILE: Final = -1
CHECKPOINT_CRC: Final = struct.Struct(">I")
CHECKPOINT_BYTES: Final = 4096
CHECKPOINT_MARK: Final = b"PYRMQ\0\0\5"
# The marks of checkpoints by earlier versions of this broker: without the index file, and without the log's start, each
# with the CRC at the position of the first missing field; and without entries and CRC.
MARK_WITHOUT_INDEX: Final = b"PYRMQ\0\0\4"
MARK_WITHOUT_START: Final = b"PYRMQ\0\0\3"
LONG_BYTES: Final = 8
MARK_WITHOUT_ENTRIES: Final = b"PYRMQ\0\0\2"
# The most that the flush times of queues and log may differ by (StoreCheckpoint.getMinTimestamp).
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
        """True for a filler before the first entry."""
        return self.is_filler and self.physical_offset == 0


def file_name(offset: int) -> str:
    """Returns the name of the file whose first byte has this offset."""
    return f"{offset:0{NAME_DIGITS}d}"


def file_offset(name: str) -> int | None:
    """Returns the offset in a file's name; None for a name of another kind."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None


def blank_record(left: int) -> bytes:
    """Returns the record that fills a segment's last `left` bytes, too few for the next record."""
    return HEAD.pack(left, BLANK_MAGIC)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The extent of synced data; RocketMQ's checkpoint lacks `safe_offset` and all fields after it."""

    log_time_ms: int = 0
    queue_time_ms: int = 0
    index_time_ms: int = 0
    slave_offset: int = 0
    confirmed_offset: int = 0
    safe_offset: int | None = None
    queues: int = 0
    entries: int = 0
    log_start: int = 0
    index_file: int | None = None

    @property
    def safe_time_ms(self) -> int:
        """The store time before which every message is in log and queues."""
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
            self.log_start,
            NO_FILE if self.index_file is None else self.index_file,
        )
        return (fields + CHECKPOINT_CRC.pack(zlib.crc32(fields))).ljust(CHECKPOINT_BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes | None) -> Self:
        """Decodes a checkpoint; returns defaults for missing or short data, so that the log is read from its start."""
        if data is None or len(data) < CHECKPOINT.size + CHECKPOINT_CRC.size:
            return cls()
        *times, mark, safe, queues, entries, log_start, file = CHECKPOINT.unpack_from(data)
        checkpoint = cls(*times)
        if mark == CHECKPOINT_MARK and _has_crc(data, CHECKPOINT.size):
            index_file = None if file == NO_FILE else file
            marked = replace(checkpoint, safe_offset=safe, queues=queues, entries=entries)
            return replace(marked, log_start=log_start, index_file=index_file)
        if mark == MARK_WITHOUT_INDEX and _has_crc(data, CHECKPOINT.size - LONG_BYTES):
            return replace(checkpoint, safe_offset=safe, queues=queues, entries=entries, log_start=log_start)
        if mark == MARK_WITHOUT_START and _has_crc(data, CHECKPOINT.size - 2 * LONG_BYTES):
            return replace(checkpoint, safe_offset=safe, queues=queues, entries=entries)
        if mark == MARK_WITHOUT_ENTRIES and not any(data[CHECKPOINT.size - 3 * LONG_BYTES : CHECKPOINT.size]):
            return replace(checkpoint, safe_offset=safe, queues=queues)
        return checkpoint


def _has_crc(data: bytes, size: int) -> bool:
    (crc,) = CHECKPOINT_CRC.unpack_from(data, size)
    return bool(crc == zlib.crc32(data[:size]))


class Mark(NamedTuple):
    """An offset of the log, with the number of queue entries and of topics' deletions before it."""

    end: int
    entries: int
    deletions: int


class IndexMark(NamedTuple):
    """The newest full and synced index file: the number in its name, and the last store time in it.

    RocketMQ's checkpoint has the time alone: with it, `file` is None.
    """

    file: int | None
    store_ms: int
