"""After a stop, clean or not: where the log ends, and queues that agree with it.

The log is read from a place before which log and queues are known to be on the medium. The first record that cannot be
right ends it. Queues are cut to what lies before that place and filled again from the records read, so that doing it
twice changes nothing. What is cut becomes zeros.

RocketMQ's way (store/CommitLog.java recoverAbnormally, store/ConsumeQueue.java recover, 5.4.0) differs in two things:
it starts at a whole segment, and it leaves the bytes of what it cuts, which may count as messages later. Either broker
opens what the other one left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pyrmq_core.broker.store.batch_queue import BatchConsumeQueue, BatchEntry, BatchSlots
from pyrmq_core.broker.store.commit_log import CommitLog
from pyrmq_core.broker.store.consume_queue import ConsumeQueue
from pyrmq_core.broker.store.formats import ENTRY, Checkpoint, Entry
from pyrmq_core.broker.store.reading import AnyConsumeQueue
from pyrmq_core.errors import RecordError, StoreError
from pyrmq_core.protocol.batch_topic import MAX_RECORD_MESSAGES
from pyrmq_core.protocol.properties import INNER_NUM, decode_properties, java_text
from pyrmq_core.protocol.record import BLANK_MAGIC, HEAD, MAGIC_V1, MAGIC_V2, RawRecord, body_crc, unpack_record
from pyrmq_core.protocol.sysflag import BATCH_RECORD, TRANSACTION_MASK

READ_BYTES: Final = 1 << 20
PAGE_BYTES: Final = 4096
# Records of prepared and rolled-back transactions stand in the log alone (MessageSysFlag.java).
WITHOUT_ENTRY: Final = (0x4, 0xC)

QueueKey = tuple[str, int]
Slots = ConsumeQueue | BatchSlots
EntryOf = Callable[[RawRecord], bytes]
# The queue of a key; a new one is of a batch topic where the topic is, or, for a topic nobody knows, the record is.
QueueOf = Callable[[QueueKey, bool], AnyConsumeQueue]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What recovery met, for the broker's log; `reason` says why the log ends at `end`, empty for its normal end."""

    clean: bool
    read_from: int
    end: int
    records: int
    reason: str
    dropped_entries: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The log ends here; zeros (an empty `reason`) are its normal end."""

    offset: int
    reason: str = ""


class MissingEntries(Exception):
    """A queue lacks entries of records that are not read again: the log has to be read from its start."""


def recover(
    log: CommitLog,
    queues: dict[QueueKey, AnyConsumeQueue],
    queue_of: QueueOf,
    entry_of: EntryOf,
    checkpoint: Checkpoint,
    *,
    clean: bool,
) -> Recovery:
    """Brings an opened log and its opened queues to agree. `queue_of` makes queues that are missing."""
    start = choose_start(log, checkpoint, len(queues), clean=clean)
    dropped = sum([_cut_queue(queue, key, log, start) for key, queue in queues.items()])
    try:
        end, records = _read_again(log, queue_of, entry_of, start, whole=start == log.start)
    except MissingEntries:
        start = log.start
        for queue in queues.values():
            queue.remove()
        end, records = _read_again(log, queue_of, entry_of, start, whole=True)
    log.flushed = min(start, log.end)
    return Recovery(clean, start, end.offset, records, end.reason, dropped)


def choose_start(log: CommitLog, checkpoint: Checkpoint, queues: int, *, clean: bool) -> int:
    """The latest place that is safe to read from: our own mark, else the beginning of a segment.

    When somebody took queues away, so that they are built anew, that is the log's beginning.
    """
    safe = checkpoint.safe_offset
    if queues < checkpoint.queues or (safe is None and not queues):
        return log.start
    if safe is not None and log.start <= safe <= log.end:
        first = next(scan(log, safe))
        if isinstance(first, RawRecord) or not first.reason:
            return safe
    segments = log.segment_offsets
    if clean:
        return segments[-1] if segments else 0
    for offset in reversed(segments):
        first = next(scan(log, offset))
        if isinstance(first, RawRecord) and first.store_timestamp_ms <= checkpoint.safe_time_ms:
            return offset
    return log.start


def scan(log: CommitLog, start: int) -> Iterator[RawRecord | LogEnd]:
    """The records from `start` on, each checked; the last one given is where the log ends."""
    offset = base = start
    buffer = b""
    while offset < log.end:
        left = log.segment_bytes - offset % log.segment_bytes
        if offset + HEAD.size > base + len(buffer):
            buffer, base = log.read(offset, min(READ_BYTES, left)), offset
        if left < HEAD.size:
            yield LogEnd(offset, "the segment ends without a blank record")
            return
        size, magic = HEAD.unpack_from(buffer, offset - base)
        if magic == BLANK_MAGIC and size == left:
            offset += left
            base, buffer = offset, b""
            continue
        if size == magic == 0:
            break
        if magic not in (MAGIC_V1, MAGIC_V2) or not 0 < size <= left:
            yield LogEnd(offset, f"{size} bytes with the magic number {magic & 0xFFFFFFFF:08x}")
            return
        if offset + size > base + len(buffer):
            buffer, base = log.read(offset, min(max(READ_BYTES, size), left)), offset
        found = _check(buffer, offset - base, offset)
        yield found
        if isinstance(found, LogEnd):
            return
        offset += size
    yield LogEnd(offset)


def record_at(log: CommitLog, offset: int, size: int) -> RawRecord | None:
    """The record of `size` bytes at `offset`; None when there is no such record."""
    try:
        found = _check(log.read(offset, size), 0, offset)
    except StoreError:
        return None
    return found if isinstance(found, RawRecord) and found.store_size == size else None


def _check(buffer: bytes, position: int, offset: int) -> RawRecord | LogEnd:
    """As DefaultMessageStore.checkMessageAndReturnSize: lengths and CRC; and the record says itself where it lies."""
    try:
        record = unpack_record(buffer, position)
    except RecordError as error:
        return LogEnd(offset, str(error))
    if body_crc(record.body) != record.body_crc:
        return LogEnd(offset, "the body's CRC differs")
    if record.commit_log_offset != offset:
        return LogEnd(offset, f"the record belongs at {record.commit_log_offset}")
    if _has_holes(record):
        return LogEnd(offset, "a part of the record was never written")
    return record


def _has_holes(record: RawRecord) -> bool:
    """Whether a page of it is missing where no CRC tells: a power cut leaves whole pages as zeros.

    Such a page reaches from before the topic, to the record's end, or lies within the properties.
    """
    properties = record.properties
    return (
        record.store_timestamp_ms <= 0
        or b"\0" in record.topic
        or properties.endswith(b"\0")
        or (len(properties) > PAGE_BYTES and bytes(PAGE_BYTES) in properties)
    )


def _read_again(log: CommitLog, queue_of: QueueOf, entry_of: EntryOf, start: int, *, whole: bool) -> tuple[LogEnd, int]:
    """Fills the queues from the records read, and cuts the log where it ends."""
    for records, found in enumerate(scan(log, start)):
        if isinstance(found, LogEnd):
            log.cut(found.offset)
            return found, records
        if found.sys_flag & TRANSACTION_MASK in WITHOUT_ENTRY:
            continue
        is_batch = found.sys_flag & BATCH_RECORD == BATCH_RECORD
        queue = queue_of((java_text(found.topic), found.queue_id), is_batch)
        if isinstance(queue, BatchConsumeQueue):
            _refill(queue, found.queue_offset, batch_entry_of(found, entry_of(found)), whole)
        elif not is_batch:  # else the topic was a batch topic, then deleted, and is a plain one now
            _refill(queue, found.queue_offset, entry_of(found), whole)
    raise AssertionError("a scan ends with the end of the log")


def batch_entry_of(record: RawRecord, entry: bytes) -> bytes:
    """What a batch topic's queue has of a record, beside what a plain queue's `entry` says."""
    count = 1
    if record.sys_flag & BATCH_RECORD == BATCH_RECORD:
        given = decode_properties(java_text(record.properties)).get(INNER_NUM, "")
        count = int(given) if given.isascii() and given.isdigit() else 0
        if not 0 < count <= MAX_RECORD_MESSAGES:
            raise StoreError(f"the batch record at {record.commit_log_offset} holds {given!r} messages by INNER_NUM")
    place, size, code = ENTRY.unpack(entry)
    return BatchEntry(place, size, code, record.store_timestamp_ms, record.queue_offset, count).pack()


def _refill(queue: AnyConsumeQueue, index: int, entry: bytes, whole: bool) -> None:
    if index < queue.end:
        if queue.holds(index, entry):
            return
        queue.cut(index)  # the topic was deleted and made again: what is younger counts
    elif index > queue.end and not whole:
        raise MissingEntries
    queue.append(index, entry)


def _cut_queue(queue: AnyConsumeQueue, key: QueueKey, log: CommitLog, start: int) -> int:
    """Keeps the entries of records before `start`; how many of these the log has no record for, and are dropped."""
    slots = queue.slots if isinstance(queue, BatchConsumeQueue) else queue
    end = _first(slots, slots.start, lambda entry: not entry.is_valid or entry.physical_offset >= start)
    kept = end
    while kept > slots.start and not _agrees(slots.entry(kept - 1), key, kept - 1, log):
        kept -= 1
    if kept < slots.end:
        slots.cut(kept)
    slots.start = _first(slots, slots.start, lambda entry: not entry.is_filler and entry.physical_offset >= log.start)
    if isinstance(queue, BatchConsumeQueue):
        queue.settle()
    return end - kept


def _first(queue: Slots, low: int, holds: Callable[[Entry | BatchEntry], bool]) -> int:
    """The first index from `low` on whose entry `holds`, as those behind it do; the end when there is none."""
    high = queue.end
    while low < high:
        middle = (low + high) // 2
        if holds(queue.entry(middle)):
            high = middle
        else:
            low = middle + 1
    return low


def _agrees(entry: Entry | BatchEntry, key: QueueKey, number: int, log: CommitLog) -> bool:
    if entry.is_filler or entry.physical_offset < log.start:
        return True
    index = entry.base if isinstance(entry, BatchEntry) else number
    record = record_at(log, entry.physical_offset, entry.size)
    return record is not None and (java_text(record.topic), record.queue_id, record.queue_offset) == (*key, index)
