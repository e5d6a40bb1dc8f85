"""Scans the commit log: yields its records one after another, each checked, up to the log's end."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import RecordError, StoreError
from pyrmq_core.protocol.framing.frame import MAX_FRAME_BYTES
from pyrmq_core.protocol.messages.record import (
    BLANK_MAGIC,
    COMMIT_LOG_OFFSET_POSITION,
    FIXED,
    HEAD,
    INT,
    MAGIC_V1,
    MAGIC_V2,
    SYS_FLAG_POSITION,
    RawRecord,
    body_crc,
    unpack_record,
)
from pyrmq_core.protocol.messages.sysflag import HOSTS_V6
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.scan.damage import next_record

READ_BYTES: Final = 1 << 20
PAGE_BYTES: Final = 4096
# The largest record: a message as large as a frame, with the properties that the broker adds.
MAX_RECORD_BYTES: Final = MAX_FRAME_BYTES + (64 << 10)
PLACE: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of the log. The `reason` is empty for its normal end, which is followed by zeros."""

    offset: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Hole:
    """A range of the log that was synced, but has no readable record: damage."""

    start: int
    end: int


def scan(log: CommitLog, start: int, trusted: int = 0) -> Iterator[RawRecord | Hole | LogEnd]:
    """Yields the records from `start` on, each checked, and finally a `LogEnd`.

    The log was synced up to `trusted`. Before that offset an unreadable range is damage, for which a `Hole` is yielded,
    and bodies are not compared with their CRC. After it an unreadable record is the log's end.
    """
    offset = start
    while True:
        for part in _scan(log, offset, trusted):
            if isinstance(part, LogEnd):
                break
            yield part
        else:
            raise AssertionError("a scan ends with the end of the log")
        offset = next_record(log, part.offset, trusted) if part.offset < trusted else part.offset
        if offset == part.offset:
            yield part
            return
        yield Hole(part.offset, offset)


def _scan(log: CommitLog, start: int, trusted: int) -> Iterator[RawRecord | LogEnd]:
    offset = base = start
    buffer, missing = b"", frozenset(log.missing)
    while offset < log.end:
        left = log.segment_bytes - offset % log.segment_bytes
        if offset - offset % log.segment_bytes in missing:
            yield LogEnd(offset, "a segment is missing")
            return
        if offset + HEAD.size > base + len(buffer):
            most = min(READ_BYTES, max(HEAD.size, log.end - offset))
            buffer, base = log.read(offset, min(most, left)), offset
        if left < HEAD.size:
            yield LogEnd(offset, "the segment ends without a blank record")
            return
        size, magic = HEAD.unpack_from(buffer, offset - base)
        if magic == BLANK_MAGIC and size == left <= log.end - offset:
            offset += left
            base, buffer = offset, b""
            continue
        if size == magic == 0:
            break
        if magic not in (MAGIC_V1, MAGIC_V2) or not 0 < size <= left:
            yield LogEnd(offset, f"{size} bytes with the magic number {magic & 0xFFFFFFFF:08x}")
            return
        if size > log.end - offset:  # a slave has not received the whole record yet
            break
        if offset + size > base + len(buffer):
            most = max(size, min(READ_BYTES, log.end - offset))
            buffer, base = log.read(offset, min(most, left)), offset
        part = _check(buffer, offset - base, offset, any_body=offset < trusted)
        yield part
        if isinstance(part, LogEnd):
            return
        offset += size
    yield LogEnd(offset)


def record_at(log: CommitLog, offset: int, size: int, *, any_body: bool = False) -> RawRecord | None:
    """Returns the record of `size` bytes at a log offset, or None if no valid record is there.

    With `any_body` the CRC of the body is not checked.
    """
    try:
        record = _check(log.read(offset, size), 0, offset, any_body=any_body)
    except StoreError:
        return None
    return record if isinstance(record, RawRecord) and record.store_size == size else None


def record_without_body(log: CommitLog, offset: int, size: int) -> RawRecord | None:
    """Returns the record of `size` bytes at a log offset without reading its body: the result's body is empty.

    Returns None if no valid record is there.
    """
    try:
        fixed = FIXED[INT.unpack(log.read(offset + SYS_FLAG_POSITION, INT.size))[0] & HOSTS_V6].size
        head = log.read(offset, fixed)
        (own_size,), (body,) = INT.unpack_from(head), INT.unpack_from(head, fixed - INT.size)
        if own_size != size or not 0 <= body <= size - fixed:
            return None
        topic_and_properties = log.read(offset + fixed + body, size - fixed - body)
    except StoreError:
        return None
    shortened = INT.pack(size - body) + head[INT.size : -INT.size] + INT.pack(0) + topic_and_properties
    record = _check(shortened, 0, offset, any_body=True)
    return record if isinstance(record, RawRecord) and record.store_size == len(shortened) else None


def record_bytes(log: CommitLog, offset: int) -> bytes | None:
    """Returns the record that begins at `offset`, or None if no record begins there.

    The offset may come from a client and lie within a body, so the record's first fields are checked before the rest is
    read.
    """
    try:
        head = log.read(offset, COMMIT_LOG_OFFSET_POSITION + PLACE.size)
        (size, magic), (own_offset,) = HEAD.unpack_from(head), PLACE.unpack_from(head, COMMIT_LOG_OFFSET_POSITION)
        is_head = magic in (MAGIC_V1, MAGIC_V2) and own_offset == offset
        if not is_head or size > min(MAX_RECORD_BYTES, log.end - offset):
            return None
        stored = log.read(offset, size)
    except StoreError:
        return None
    return None if isinstance(_check(stored, 0, offset), LogEnd) else stored


def _check(buffer: bytes, position: int, offset: int, *, any_body: bool = False) -> RawRecord | LogEnd:
    """Returns the record at `position` of `buffer`, or a `LogEnd` with the reason if it is not valid.

    Source of the checks: DefaultMessageStore.checkMessageAndReturnSize.
    """
    try:
        record = unpack_record(buffer, position)
    except RecordError as error:
        return LogEnd(offset, str(error))
    if not any_body and body_crc(record.body) != record.body_crc:
        return LogEnd(offset, "the body's CRC differs")
    if record.commit_log_offset != offset:
        return LogEnd(offset, f"the record belongs at {record.commit_log_offset}")
    if _has_holes(record):
        return LogEnd(offset, "a part of the record was never written")
    return record


def _has_holes(record: RawRecord) -> bool:
    """Returns True if zeros show that a power cut lost a page outside the body, where no CRC would show it."""
    properties = record.properties
    return (
        record.store_timestamp_ms == 0  # a clock may be before 1970, but the store never writes 0
        or b"\0" in record.topic
        or properties.endswith(b"\0")
        or (len(properties) > PAGE_BYTES and bytes(PAGE_BYTES) in properties)
    )
