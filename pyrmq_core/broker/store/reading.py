"""What a pull gets of a queue: which entries, how many, and the slices of the log they point to.

Source: store/DefaultMessageStore.java getMessage (5.4.0): status, next offset and limits are its own. Records that lie
side by side in the log, as those of a batch do, are read as one piece.
"""

from __future__ import annotations

import enum
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from pyrmq_core.broker.store.commit_log import CommitLog
from pyrmq_core.broker.store.consume_queue import ConsumeQueue
from pyrmq_core.broker.store.formats import Entry

# `maxFilterMessageSize` / 20: entries looked at for one answer.
MAX_SCANNED_ENTRIES: Final = 800


class GetStatus(enum.Enum):
    """store/GetMessageStatus.java; the name is the answer's remark."""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_FOUND_NULL = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one answer holds; the first message is given whatever its size."""

    max_messages: int = 32
    max_bytes: int = 262_144


@dataclass(frozen=True, slots=True)
class Found:
    """The answer: `records` as they lie in the log, `next_offset` also where nothing was found."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes = b""
    count: int = 0


def read_messages(
    log: CommitLog, queue: ConsumeQueue | None, offset: int, limits: Limits, tags_codes: Container[int] | None
) -> Found:
    """Messages from `offset` on whose tags code is among `tags_codes` (None: all)."""
    if queue is None:
        return Found(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    start, end = queue.start, queue.end
    status, next_offset = _judge(start, end, offset)
    if status is not GetStatus.FOUND:
        return Found(status, next_offset, start, end)
    wanted, next_offset, status = _choose(log.start, queue, offset, limits, tags_codes)
    if not wanted:
        return Found(status, next_offset, start, end)
    return Found(GetStatus.FOUND, next_offset, start, end, _joined(log, wanted), len(wanted))


def _judge(start: int, end: int, offset: int) -> tuple[GetStatus, int]:
    """The status of an offset, FOUND when there is a message at it, and where to go on."""
    if end == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < start:
        return GetStatus.OFFSET_TOO_SMALL, start
    if offset == end:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > end:
        return GetStatus.OFFSET_OVERFLOW_BADLY, end
    return GetStatus.FOUND, offset


def _choose(
    log_start: int, queue: ConsumeQueue, offset: int, limits: Limits, tags_codes: Container[int] | None
) -> tuple[list[Entry], int, GetStatus]:
    """The entries that are answered, the offset after the last one looked at, and what to say when there are none."""
    wanted: list[Entry] = []
    size, status = 0, GetStatus.NO_MATCHED_MESSAGE
    most = max(1, limits.max_messages)
    # Without a filter nothing is skipped but fillers and removed messages, which are rare: look at few first.
    for entry in queue.entries(offset, most if tags_codes is None else max(MAX_SCANNED_ENTRIES, most)):
        if not entry.is_filler:
            if entry.physical_offset < log_start:
                status = GetStatus.MESSAGE_WAS_REMOVING
            elif tags_codes is None or entry.tags_code in tags_codes:
                if wanted and (len(wanted) >= most or size + entry.size > limits.max_bytes):
                    break
                wanted.append(entry)
                size += entry.size
        offset += 1
    return wanted, offset, status


def _joined(log: CommitLog, entries: list[Entry]) -> bytes:
    """The records of the entries, one after another; neighbours in one read."""
    pieces: list[bytes] = []
    start, size = entries[0].physical_offset, 0
    for entry in entries:
        if entry.physical_offset != start + size:
            pieces.append(log.read(start, size))
            start, size = entry.physical_offset, 0
        size += entry.size
    pieces.append(log.read(start, size))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
