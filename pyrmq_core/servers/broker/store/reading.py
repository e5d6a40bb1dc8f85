"""Reads a queue for a pull: selects entries, and reads their records from the log.

Source: store/DefaultMessageStore.java getMessage (5.4.0), with its status, next offset and limits. Adjacent records,
such as those of a batch, are read as one piece, a run.

The record to which a queue entry refers must have the entry's topic, queue, queue offset, log offset and size. The
record of a lite topic's message has the topic, queue and offset of the parent topic. Its lite queue and the offset
there are properties. Only the first and the last record of a run are checked, since by the sizes in the entries no
other record lies between. A pull returns the messages before a wrong entry. If its first entry is wrong, it raises
`StoreError`. RocketMQ returns the bytes unchecked.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Container
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from pyrmq_core.errors import RecordError, StoreError
from pyrmq_core.protocol.messages.lite_topics import lite_places
from pyrmq_core.protocol.messages.names import is_lite_queue
from pyrmq_core.protocol.messages.record import FIXED, INT, MIN_RECORD_BYTES, SYS_FLAG_POSITION, unpack_record
from pyrmq_core.protocol.messages.sysflag import BORN_HOST_V6, HOSTS_V6
from pyrmq_core.servers.broker.store.appending import topic_part
from pyrmq_core.servers.broker.store.batch_queue import BATCH_ENTRY_BYTES, BatchConsumeQueue, BatchEntry
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.consume_queue import ConsumeQueue
from pyrmq_core.servers.broker.store.formats import FILLER_SIZE
from pyrmq_core.servers.broker.store.scan.log_scan import record_bytes, record_without_body

QueueKey: TypeAlias = tuple[str, int]
AnyConsumeQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue

# The most entries that a pull examines: RocketMQ's maxFilterMessageSize, 16000, divided by an entry's 20 bytes.
MAX_SCANNED_ENTRIES: Final = 800
MAX_SCANNED_BYTES: Final = 16_000
# The fields that identify a record: total size, magic, queue id, queue offset, commit-log offset, sysFlag; and the
# body's length, which is at this place if both hosts are IPv4.
IDENTITY: Final = struct.Struct(">ii4xi4xqqi44xi")
# A run: log offset, bytes, number of messages, the first record's queue offset, the last record's log offset and its
# queue offset. A pull creates many runs, and a tuple is the fastest.
Run: TypeAlias = tuple[int, int, int, int, int, int]
MESSAGES: Final = 2
FIRST_INDEX: Final = 3


class GetStatus(enum.Enum):
    """The outcome of a pull (store/GetMessageStatus.java). Its name is the remark of the response."""

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
class GetLimits:
    """The limits of the response to a pull. The first message is returned even if it is larger than `max_bytes`.

    `requested_messages` is the number in the request, or None for `max_messages`. Batch records are returned complete:
    with the last one the response may exceed `max_messages`, but not `requested_messages`.
    """

    max_messages: int = 32
    max_bytes: int = 262_144
    requested_messages: int | None = None


@dataclass(frozen=True, slots=True)
class GetResult:
    """The result of a pull: `count` messages in `records`, as in the log, and the offset of the next pull.

    `min_offset` and `max_offset` are the bounds of the queue. `last_place` is the log offset of the last examined
    message, or None if none was examined.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes = b""
    count: int = 0
    last_place: int | None = None


def read_messages(
    log: CommitLog,
    queue: AnyConsumeQueue | None,
    key: QueueKey,
    offset: int,
    limits: GetLimits,
    tags_codes: Container[int] | None,
) -> GetResult:
    """Returns the messages from `offset` on that have one of the `tags_codes`, or all messages if that is None.

    Records of a batch topic are returned complete. Raises `StoreError` if the first message is not at the log offset in
    its entry.
    """
    if queue is None:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    start, end = queue.start, queue.end
    status, next_offset = _judge(start, end, offset)
    if status is not GetStatus.FOUND:
        return GetResult(status, next_offset, start, end)
    if isinstance(queue, BatchConsumeQueue):
        chosen = _choose_records(log.start, queue, key, offset, limits, tags_codes)
    else:
        chosen = _choose(log.start, queue, key, offset, limits, tags_codes)
    if not chosen.messages:
        return GetResult(chosen.status, chosen.next_offset, start, end, last_place=chosen.last_place)
    pieces: list[bytes] = []
    count, next_offset = 0, chosen.next_offset
    for run in chosen.runs:
        try:
            piece = _read_run(log, run, key, limits.max_bytes)
        except StoreError as error:
            if not count:
                raise entry_error(key, run[FIRST_INDEX], str(error)) from error
            next_offset = run[FIRST_INDEX]
            break
        pieces.append(piece)
        count += run[MESSAGES]
    records = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return GetResult(GetStatus.FOUND, next_offset, start, end, records, count, chosen.last_place)


def _judge(start: int, end: int, offset: int) -> tuple[GetStatus, int]:
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
    """The messages chosen for an answer, as `runs` of adjacent records in the log."""

    runs: list[Run]
    messages: int
    next_offset: int
    status: GetStatus
    last_place: int | None


def _choose(
    log_start: int,
    queue: ConsumeQueue,
    key: QueueKey,
    offset: int,
    limits: GetLimits,
    tags_codes: Container[int] | None,
) -> _Chosen:
    most, max_bytes = max(1, limits.max_messages), limits.max_bytes
    runs: list[Run] = []
    last_place: int | None = None
    count = total = counted = 0
    run_start = run_end = last_start = -1
    first_index = last_index = offset
    status = GetStatus.NO_MATCHED_MESSAGE
    # Without a filter nearly all entries match, so it is enough to read `most`.
    for physical_offset, size, code in queue.entries(offset, most if tags_codes is None else MAX_SCANNED_ENTRIES):
        if size <= 0 or physical_offset < 0:
            if count:
                break
            raise entry_error(key, offset, f"{size} bytes at {physical_offset} of the commit log")
        if physical_offset < log_start or size == FILLER_SIZE:
            status = GetStatus.MESSAGE_WAS_REMOVING
        elif tags_codes is None or code in tags_codes:
            if count and (count >= most or total + size > max_bytes):
                break
            if physical_offset != run_end:
                if count:
                    runs.append((run_start, run_end - run_start, count - counted, first_index, last_start, last_index))
                    counted = count
                run_start, first_index = physical_offset, offset
            last_start, last_index = physical_offset, offset
            run_end = physical_offset + size
            count += 1
            total += size
        last_place = physical_offset
        offset += 1
    if count:
        runs.append((run_start, run_end - run_start, count - counted, first_index, last_start, last_index))
    return _Chosen(runs, count, offset, status, last_place)


def _choose_records(
    log_start: int,
    queue: BatchConsumeQueue,
    key: QueueKey,
    offset: int,
    limits: GetLimits,
    tags_codes: Container[int] | None,
) -> _Chosen:
    """Chooses complete batch records for a pull, from the one with the message at `offset` on, up to the limits.

    As in 5.4.0, the number of examined messages times 46, the bytes of an entry, is limited by MAX_SCANNED_BYTES.
    """
    requested = max(1, limits.max_messages if limits.requested_messages is None else limits.requested_messages)
    most_bytes = max(MAX_SCANNED_BYTES, requested * BATCH_ENTRY_BYTES)
    runs: list[Run] = []
    last_place: int | None = None
    count = total = 0
    status, position = GetStatus.NO_MATCHED_MESSAGE, offset
    for entry in queue.entries(offset):
        if not entry.is_valid or entry.end <= position:
            if count:
                break
            raise entry_error(key, position, f"{entry.size} bytes at {entry.physical_offset} of the commit log")
        if entry.physical_offset < log_start:
            status = GetStatus.MESSAGE_WAS_REMOVING
        elif tags_codes is None or entry.tags_code in tags_codes:
            full = count + entry.inner_num > requested or count >= limits.max_messages
            if count and (full or total + entry.size > limits.max_bytes):
                break
            start, base = entry.physical_offset, entry.base
            runs.append((start, entry.size, entry.inner_num, base, start, base))
            count += entry.inner_num
            total += entry.size
        position, last_place = entry.end, entry.physical_offset
        if (position - offset) * BATCH_ENTRY_BYTES > most_bytes:
            break
    return _Chosen(runs, count, position, status, last_place)


def _read_run(log: CommitLog, run: Run, key: QueueKey, max_bytes: int) -> bytes:
    """Returns the bytes of adjacent records. Raises `StoreError` if the first or the last does not match its entry."""
    if is_lite_queue(key[0]):
        return _read_lite_run(log, run, key)
    begin, size, _, first_index, last_begin, last_index = run
    if size > max_bytes:  # the run is one message, and if its entry is damaged, its size may be that of a segment
        check_record(log, begin, size, key, first_index)
    piece = log.read(begin, size)
    magic, topic = topic_part(key[0])
    single = begin == last_begin
    if _is_own(piece, 0, size if single else 0, begin, first_index, key[1], magic, topic) and (
        single or _is_own(piece, last_begin - begin, 0, last_begin, last_index, key[1], magic, topic)
    ):
        return piece
    raise StoreError(_other_record(begin))


def _read_lite_run(log: CommitLog, run: Run, key: QueueKey) -> bytes:
    begin, size, messages, first_index, last_begin, last_index = run
    piece = log.read(begin, size) if messages > 1 else record_bytes(log, begin) or b""
    try:
        first, last = unpack_record(piece, 0), unpack_record(piece, last_begin - begin)
    except RecordError as error:
        raise StoreError(_other_record(begin)) from error
    ends = (first.commit_log_offset, last.commit_log_offset, last_begin - begin + last.store_size)
    places = lite_places(first).get(key[0]), lite_places(last).get(key[0])
    if len(piece) != size or ends != (begin, last_begin, size) or places != (first_index, last_index):
        raise StoreError(_other_record(begin))
    return piece


def _is_own(
    records: bytes, at: int, size: int, log_offset: int, index: int, queue_id: int, magic: int, topic: bytes
) -> bool:
    if len(records) - at < MIN_RECORD_BYTES:
        return False
    own_size, own_magic, own_queue, own_index, own_place, sys_flag, body = IDENTITY.unpack_from(records, at)
    if own_index != index or own_place != log_offset or own_queue != queue_id or own_magic != magic:
        return False
    if own_size != size and (size or (at and own_size != len(records) - at)):
        return False
    body_at = at + IDENTITY.size
    if sys_flag & HOSTS_V6:
        body_at = at + FIXED[sys_flag & HOSTS_V6].size
        (body,) = INT.unpack_from(records, body_at - INT.size)
    return records.startswith(topic, body_at + body)


def check_record(log: CommitLog, log_offset: int, size: int, key: QueueKey, index: int) -> bytes:
    """Returns the first bytes of the record at `log_offset`, after a check that its queue entry refers to it.

    Raises `StoreError` if its size, topic, queue or queue offset (`index`) is another.
    """
    start = log.read(log_offset, max(0, min(size, MIN_RECORD_BYTES)))
    if len(start) == MIN_RECORD_BYTES:
        magic, topic = topic_part(key[0])
        own_size, own_magic, own_queue, own_index, own_place, sys_flag, _ = IDENTITY.unpack_from(start)
        if (own_size, own_magic, own_queue, own_index, own_place) == (size, magic, key[1], index, log_offset):
            body_at = FIXED[sys_flag & HOSTS_V6].size
            (body,) = INT.unpack(log.read(log_offset + body_at - INT.size, INT.size))
            if body >= 0 and log.read(log_offset + body_at + body, len(topic)) == topic:
                return start
    raise StoreError(_other_record(log_offset))


def stored_ms(log: CommitLog, queue: AnyConsumeQueue, key: QueueKey, offset: int) -> int | None:
    """Returns the store time in ms of the message at a queue offset, or None if the queue has no such message.

    Raises `StoreError` if the queue's entry refers to another record.
    """
    if not queue.start <= offset < queue.end:
        return None
    entry = queue.entry(offset)
    if entry.is_filler or 0 <= entry.physical_offset < log.start:
        return None
    index = entry.base if isinstance(entry, BatchEntry) else offset
    if is_lite_queue(key[0]):
        record = record_without_body(log, entry.physical_offset, entry.size)
        if record is None or lite_places(record).get(key[0]) != offset:
            raise entry_error(key, offset, _other_record(entry.physical_offset))
        return record.store_timestamp_ms
    try:
        head = check_record(log, entry.physical_offset, entry.size, key, index)
    except StoreError as error:
        raise entry_error(key, index, str(error)) from error
    at = 68 if int.from_bytes(head[SYS_FLAG_POSITION : SYS_FLAG_POSITION + 4]) & BORN_HOST_V6 else 56
    return int.from_bytes(head[at : at + 8], signed=True)


def search_time(log: CommitLog, queue: AnyConsumeQueue, key: QueueKey, timestamp_ms: int, *, upper: bool) -> int:
    """Returns the queue offset of the first message stored at or after a time, or the queue's end if there is none.

    With `upper` it returns the offset of the last message stored at or before the time, or the queue's start.
    """
    low, high = start, end = queue.start, queue.end
    while low < high:
        middle = (low + high) // 2
        stored = stored_ms(log, queue, key, middle)
        if stored is None or stored < timestamp_ms or (upper and stored == timestamp_ms):
            low = middle + 1
        else:
            high = middle
    return max(start, min(low - 1, end)) if upper else low


def _other_record(log_offset: int) -> str:
    return f"another record, or none, at {log_offset} of the commit log"


def entry_error(key: QueueKey, index: int, what: str) -> StoreError:
    return StoreError(
        f"entry {index} of queue {key[1]} of topic {key[0]} names {what}: the store is damaged there. Queues are built "
        f"anew from the commit log at a start without {key[0]}/{key[1]} among the consume queues"
    )
