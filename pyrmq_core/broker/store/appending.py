"""The bytes that an append adds: records with their offsets, and their queue entries.

The records of a batch are made together, so that they are one write to the log and one to the queue. A test compares
the bytes with those of protocol/messages/record.py. For speed, fields that are equal in the whole batch are packed
once, and lengths that a batch body already has are copied together with their data.
"""

from __future__ import annotations

import functools
import itertools
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pyrmq_core.broker.store.batch_queue import BatchEntry
from pyrmq_core.broker.store.formats import ENTRY
from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.protocol.java.string_hash import tags_code
from pyrmq_core.protocol.messages.batch import HEAD, OVERHEAD_BYTES
from pyrmq_core.protocol.messages.properties import INNER_BASE, INNER_NUM, decode_java_utf8, encode_properties
from pyrmq_core.protocol.messages.record import (
    BYTE,
    CRC_MASK,
    INT,
    MAGIC_V1,
    MAGIC_V2,
    MAX_V1_TOPIC_BYTES,
    SHORT,
    RawRecord,
)
from pyrmq_core.protocol.messages.sysflag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6

TAGS_START: Final = b"TAGS\x01"
# The most that INNER_NUM and INNER_BASE add to a batch record.
INNER_BYTES: Final = 64
SEPARATOR: Final = b"\x02"
# Where a message of a batch body has its body, whose length is before it.
BODY_AT: Final = HEAD.size - INT.size
# A record's first seven fields, packed for each message; the next ones, up to the body's length, are equal in a batch.
START: Final = struct.Struct(
    ">"
    "i"  # total size
    "i"  # magic
    "i"  # body CRC
    "i"  # queue id
    "i"  # flag
    "q"  # queue offset
    "q"  # commit-log offset
)
# All fields of a fixed length but the two hosts.
FIXED_BYTES: Final = START.size + struct.calcsize(">iqqiq")
# The fields behind `START`, by the two host bits of sysFlag.
MIDDLES: Final = {
    bits: struct.Struct(f">iq{20 if bits & BORN_HOST_V6 else 8}sq{20 if bits & STORE_HOST_V6 else 8}siq")
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_V6)
}


class DoesNotFit(StoreError):
    """Messages of one append that are larger than a segment."""


class Piece(NamedTuple):
    """One message's own parts; `body` begins with its length in 4 bytes, `properties` in 2."""

    flag: int
    body: bytes
    properties: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """Messages for one queue, which get consecutive offsets: one, or a batch. Hosts are packed (record.pack_host).

    With `delay_ms` the queue entries have the store time plus the delay in place of the tags' hash. With `inner_num`
    the only piece is a whole batch of that many messages, for a queue of a batch topic.
    """

    topic: str
    queue_id: int
    pieces: Sequence[Piece]
    born_timestamp_ms: int
    born_host: bytes
    store_host: bytes
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    delay_ms: int | None = None
    inner_num: int = 0

    def based(self, queue_offset: int) -> Append:
        """Returns the whole batch with INNER_NUM and INNER_BASE, its first message's offset, in its properties."""
        (batch,) = self.pieces
        added = encode_properties({INNER_NUM: str(self.inner_num), INNER_BASE: str(queue_offset)}).encode()
        return replace(self, pieces=[batch._replace(properties=_lengthened(batch.properties, added))])


class AppendResult(NamedTuple):
    """The place of an append: its records in the log, its first queue offset, and the log's end behind it."""

    positions: list[int]
    queue_offset: int
    end: int


class Dispatched(NamedTuple):
    """Messages of one append that became readable, and where they are in the log."""

    append: Append
    positions: list[int]
    store_ms: int
    end: int


class EncodedRecords(NamedTuple):
    """The bytes for log and queue, and the log offset of each record."""

    records: bytes
    entries: bytes
    positions: list[int]


def piece(flag: int, body: bytes | memoryview, properties: bytes) -> Piece:
    """Returns a single message's parts; properties have at most 32,767 bytes."""
    return Piece(flag, b"".join((INT.pack(len(body)), body)), SHORT.pack(len(properties)) + properties)


def batch_pieces(body: bytes) -> list[Piece]:
    """Returns the messages of a batch body as slices of it; raises `BodyError` where `iterate_batch_body` does."""
    shape = _common_shape(body)
    if shape is None:
        return [Piece(flag, body[start:end], body[end:following]) for flag, start, end, following in _places(body)]
    size, properties_at = shape
    starts = range(0, len(body), size)
    flags = [flag for _, _, _, flag, _ in map(HEAD.unpack_from, itertools.repeat(body), starts)]
    return [
        Piece(flag, body[start + BODY_AT : start + properties_at], body[start + properties_at : start + size])
        for flag, start in zip(flags, starts, strict=True)
    ]


def count_messages(body: bytes) -> int:
    """Returns how many messages a batch body has; raises `BodyError` as `batch_pieces` does."""
    shape = _common_shape(body)
    return sum([1 for _ in _places(body)]) if shape is None else len(body) // shape[0]


def _common_shape(body: bytes) -> tuple[int, int] | None:
    """Returns the length of each message, and where its properties begin, if these are equal in all; else None.

    Column k of such a batch is the k-th byte of each message: those of the lengths have one value.
    """
    if len(body) < OVERHEAD_BYTES:
        return None
    size, _, _, _, body_bytes = HEAD.unpack_from(body)
    properties_at = HEAD.size + body_bytes
    if body_bytes < 0 or properties_at + SHORT.size > size or len(body) % size:
        return None
    if SHORT.unpack_from(body, properties_at)[0] != size - properties_at - SHORT.size:
        return None
    count = len(body) // size
    for at in (*range(INT.size), *range(BODY_AT, HEAD.size), properties_at, properties_at + 1):
        if body[at::size] != body[at : at + 1] * count:
            return None
    return size, properties_at


def _places(body: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yields each message's flag, where its body begins, with its length before it, and where body and message end."""
    position, end = 0, len(body)
    while position < end:
        if end - position < OVERHEAD_BYTES:
            raise BodyError(f"a batch ends inside the message at byte {position}")
        size, _, _, flag, body_bytes = HEAD.unpack_from(body, position)
        body_end = position + HEAD.size + body_bytes
        following = position + size
        if size < OVERHEAD_BYTES or following > end or body_bytes < 0 or body_end + SHORT.size > following:
            raise BodyError(f"a batch: the message at byte {position} declares {size} bytes, {body_bytes} of body")
        if SHORT.unpack_from(body, body_end)[0] != following - body_end - SHORT.size:
            raise BodyError(f"a batch: the properties of the message at byte {position} do not end with it")
        yield flag, position + BODY_AT, body_end, following
        position = following


def appended_bytes(append: Append) -> int:
    """Returns the number of bytes that an append takes in the log."""
    size, hosts = 0, len(append.born_host) + len(append.store_host)
    overhead = FIXED_BYTES + hosts + len(topic_part(append.topic)[1])
    for _, body, properties in append.pieces:
        size += overhead + len(body) + len(properties)
    return size


def build(
    append: Append, physical_offset: int, queue_offset: int, store_timestamp_ms: int, *, batch_topic: bool = False
) -> EncodedRecords:
    """Returns the bytes of an append whose first record has these offsets; entries are a plain or a batch queue's."""
    middle, (magic, topic) = _middle(append, store_timestamp_ms), topic_part(append.topic)
    overhead = START.size + len(middle) + len(topic)
    due_ms = None if append.delay_ms is None else store_timestamp_ms + append.delay_ms
    queue_id, pack_start, pack_entry, crc32 = append.queue_id, START.pack, ENTRY.pack, zlib.crc32
    records: list[bytes] = []
    entries: list[bytes] = []
    positions: list[int] = []
    for flag, body, properties in append.pieces:
        size = overhead + len(body) + len(properties)
        crc = crc32(body[INT.size :]) & CRC_MASK
        start = pack_start(size, magic, crc, queue_id, flag, queue_offset, physical_offset)
        records += (start, middle, body, topic, properties)
        code = properties_tags_code(properties[SHORT.size :]) if due_ms is None else due_ms
        if batch_topic:
            count = append.inner_num or 1
            entries.append(BatchEntry(physical_offset, size, code, store_timestamp_ms, queue_offset, count).pack())
        else:
            entries.append(pack_entry(physical_offset, size, code))
        positions.append(physical_offset)
        queue_offset += 1
        physical_offset += size
    return EncodedRecords(b"".join(records), b"".join(entries), positions)


def _lengthened(properties: bytes, added: bytes) -> bytes:
    (size,) = SHORT.unpack_from(properties)
    return SHORT.pack(size + len(added)) + properties[SHORT.size :] + added


def entry_of_record(record: RawRecord) -> bytes:
    """Returns the queue entry of a record that recovery reads."""
    return ENTRY.pack(record.commit_log_offset, record.store_size, properties_tags_code(record.properties))


def properties_tags_code(properties: bytes) -> int:
    """Returns the hash of TAGS in a properties string, 0 without; of several the last that is not empty, as in Java."""
    at = properties.rfind(TAGS_START)
    while at >= 0:
        if at == 0 or properties[at - 1] == SEPARATOR[0]:
            start = at + len(TAGS_START)
            end = properties.find(SEPARATOR, start)
            if tags := properties[start : end if end >= 0 else len(properties)]:
                return _hash(tags)
        at = properties.rfind(TAGS_START, 0, at)
    return 0


@functools.lru_cache(maxsize=4096)
def _hash(tags: bytes) -> int:
    return tags_code(decode_java_utf8(tags))


def _middle(append: Append, store_timestamp_ms: int) -> bytes:
    """Packs the fields from sysFlag to prepared transaction offset; sysFlag's host bits are set by the hosts."""
    born, store = append.born_host, append.store_host
    bits = (BORN_HOST_V6 if len(born) > 8 else 0) | (STORE_HOST_V6 if len(store) > 8 else 0)
    return MIDDLES[bits].pack(
        append.sys_flag & ~HOSTS_V6 | bits,
        append.born_timestamp_ms,
        born,
        store_timestamp_ms,
        store,
        append.reconsume_times,
        append.prepared_transaction_offset,
    )


@functools.lru_cache(maxsize=4096)
def topic_part(topic: str) -> tuple[int, bytes]:
    """Returns the magic number of the record form that fits the topic, and the topic's length and bytes."""
    raw = topic.encode()
    if len(raw) <= MAX_V1_TOPIC_BYTES:
        return MAGIC_V1, BYTE.pack(len(raw)) + raw
    return MAGIC_V2, SHORT.pack(len(raw)) + raw
