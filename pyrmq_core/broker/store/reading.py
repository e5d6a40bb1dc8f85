"""What a pull gets of a queue: which entries, how many, and the slices of the log they point to.

Source: store/DefaultMessageStore.java getMessage (5.4.0): status, next offset and limits are its own. Records that lie
side by side in the log, as those of a batch do, are read as one piece.
"""

from __future__ import annotations

import enum
from collections.abc import Container
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from pyrmq_core.broker.store.batch_queue import BATCH_ENTRY_BYTES, BatchConsumeQueue
from pyrmq_core.broker.store.commit_log import CommitLog
from pyrmq_core.broker.store.consume_queue import ConsumeQueue
from pyrmq_core.broker.store.formats import FILLER_SIZE

AnyConsumeQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue

# `maxFilterMessageSize` / 20: entries looked at for one answer.
MAX_SCANNED_ENTRIES: Final = 800
MAX_SCANNED_BYTES: Final = 16_000


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
    """How much one answer holds; the first message is given whatever its size.

    `asked_messages` is what the reader wants, where that is more: it bounds whole batches.
    """

    max_messages: int = 32
    max_bytes: int = 262_144
    asked_messages: int | None = None


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
    log: CommitLog, queue: AnyConsumeQueue | None, offset: int, limits: Limits, tags_codes: Container[int] | None
) -> Found:
    """Messages from `offset` on whose tags code is among `tags_codes` (None: all); of a batch topic whole records."""
    if queue is None:
        return Found(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    start, end = queue.start, queue.end
    status, next_offset = _judge(start, end, offset)
    if status is not GetStatus.FOUND:
        return Found(status, next_offset, start, end)
    if isinstance(queue, BatchConsumeQueue):
        chosen = _choose_records(log.start, queue, offset, limits, tags_codes)
    else:
        chosen = _choose(log.start, queue, offset, limits, tags_codes)
    if not chosen.messages:
        return Found(chosen.status, chosen.next_offset, start, end)
    pieces = [log.read(*run) for run in chosen.runs]
    records = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return Found(GetStatus.FOUND, chosen.next_offset, start, end, records, chosen.messages)


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


class _Chosen(NamedTuple):
    """Which messages are answered: runs of the log (offset, bytes); the offset after the last entry looked at."""

    runs: list[tuple[int, int]]
    messages: int
    next_offset: int
    status: GetStatus


def _choose(
    log_start: int, queue: ConsumeQueue, offset: int, limits: Limits, tags_codes: Container[int] | None
) -> _Chosen:
    most, max_bytes = max(1, limits.max_messages), limits.max_bytes
    runs: list[tuple[int, int]] = []
    count = total = 0
    run_start = run_end = -1
    status = GetStatus.NO_MATCHED_MESSAGE
    # Without a filter nothing is skipped but fillers and removed messages, which are rare: few entries are read.
    for physical_offset, size, code in queue.entries(offset, most if tags_codes is None else MAX_SCANNED_ENTRIES):
        if size == FILLER_SIZE and physical_offset == 0:
            pass
        elif physical_offset < log_start:
            status = GetStatus.MESSAGE_WAS_REMOVING
        elif tags_codes is None or code in tags_codes:
            if count and (count >= most or total + size > max_bytes):
                break
            if physical_offset != run_end:
                if count:
                    runs.append((run_start, run_end - run_start))
                run_start = physical_offset
            run_end = physical_offset + size
            count += 1
            total += size
        offset += 1
    if count:
        runs.append((run_start, run_end - run_start))
    return _Chosen(runs, count, offset, status)


def _choose_records(
    log_start: int, queue: BatchConsumeQueue, offset: int, limits: Limits, tags_codes: Container[int] | None
) -> _Chosen:
    """As `_choose`, of whole records: the one that holds `offset`, and what follows while there is room for it.

    Offsets passed by are counted as if each had an entry of its own, as 5.4.0 does: few are skipped by one answer.
    """
    asked = max(1, limits.max_messages if limits.asked_messages is None else limits.asked_messages)
    runs: list[tuple[int, int]] = []
    count = total = 0
    status, position = GetStatus.NO_MATCHED_MESSAGE, offset
    for entry in queue.entries(offset):
        if entry.physical_offset < log_start:
            status = GetStatus.MESSAGE_WAS_REMOVING
        elif tags_codes is None or entry.tags_code in tags_codes:
            full = count + entry.inner_num > asked or count >= limits.max_messages
            if count and (full or total + entry.size > limits.max_bytes):
                break
            runs.append((entry.physical_offset, entry.size))
            count += entry.inner_num
            total += entry.size
        position = entry.end
        if (position - offset) * BATCH_ENTRY_BYTES > MAX_SCANNED_BYTES and not count:
            break
    return _Chosen(runs, count, position, status)
