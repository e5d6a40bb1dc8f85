"""Encodes an append: its records with their offsets, and their queue entries.

All records of a batch are encoded together, so that they need one write to the log and one to the queue. For speed,
fields that are equal in all records are packed once. Each other field is packed for all records with one call.
"""

from __future__ import annotations

import functools
import itertools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.java.string_hash import tags_code
from pyrmq_core.protocol.messages.lite_topics import OFFSETS, OFFSETS_INSIDE, QUEUES
from pyrmq_core.protocol.messages.properties import INNER_BASE, INNER_NUM, decode_java_utf8, encode_properties
from pyrmq_core.protocol.messages.record import (
    BYTE,
    COMMIT_LOG_OFFSET_POSITION,
    CRC_MASK,
    INT,
    MAGIC_V1,
    MAGIC_V2,
    MAX_V1_TOPIC_BYTES,
    QUEUE_OFFSET_POSITION,
    SHORT,
    RawRecord,
    put_numbers,
)
from pyrmq_core.protocol.messages.sysflag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6
from pyrmq_core.servers.broker.store.batch_pieces import BatchPieces, Piece
from pyrmq_core.servers.broker.store.batch_queue import BatchEntry
from pyrmq_core.servers.broker.store.formats import ENTRY

TAGS_START: Final = b"TAGS\x01"
TAGS_INSIDE: Final = b"\x02" + TAGS_START
# The most bytes of properties that the broker adds to a batch record, and to the message of a lite topic.
INNER_BYTES: Final = 64
LITE_BYTES: Final = 325
# Replaces the property name INNER_MULTI_QUEUE_OFFSET to disable it. Its length is the same.
NO_OFFSETS: Final = b"OTHER_MULTI_QUEUE_OFFSET"
SEPARATOR: Final = b"\x02"
# A record's first seven fields, which differ between the messages of a send; the next fields, up to the body's length,
# are equal.
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
# All fields of fixed length except the two hosts.
FIXED_BYTES: Final = START.size + struct.calcsize(">iqqiq")
CRC_AT: Final = 8
FLAG_PLACE: Final = 16
LONG_BYTES: Final = 8
# The positions of the size and of the tags' hash in a queue entry.
ENTRY_SIZE_AT, ENTRY_CODE_AT = 8, 12
# The fields after `START`, by the two host bits of sysFlag.
MIDDLES: Final = {
    bits: struct.Struct(f">iq{20 if bits & BORN_HOST_V6 else 8}sq{20 if bits & STORE_HOST_V6 else 8}siq")
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_V6)
}


class DoesNotFit(StoreError):
    """Raised for an append that is larger than a segment, and for a batch record in a queue of single messages."""


@dataclass(frozen=True, slots=True)
class Append:
    """The messages (`pieces`) to store in one queue, with consecutive offsets. Hosts are packed (record.pack_host).

    If `delay_ms` is set, the queue entries have the delivery time in place of the tags' hash. If `inner_num` is above
    0, the only piece is a record with a batch of that many messages, for a batch topic. If `lite_queue` names the queue
    of a lite topic, the message also gets an entry there.
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
    lite_queue: str = ""

    def based(self, queue_offset: int) -> Append:
        """Returns a copy with the properties INNER_NUM (messages in the batch) and INNER_BASE (first queue offset)."""
        return self._with({INNER_NUM: str(self.inner_num), INNER_BASE: str(queue_offset)})

    def placed(self, lite_offset: int) -> Append:
        """Returns a copy whose properties name the lite topic's queue and the message's offset there, as in 5.5.0."""
        return self._with({QUEUES: self.lite_queue, OFFSETS: str(lite_offset)})

    def unplaced(self) -> Append:
        """Returns a copy in which the property INNER_MULTI_QUEUE_OFFSET is renamed, so that it has no effect.

        Only the broker may set it, but a sender may have done so, or the message is a copy of a lite topic's message.
        """
        pieces = [
            piece._replace(properties=piece.properties.replace(OFFSETS_INSIDE, NO_OFFSETS)) for piece in self.pieces
        ]
        return replace(self, pieces=pieces)

    def _with(self, properties: dict[str, str]) -> Append:
        (message,) = self.pieces
        added = encode_properties(properties).encode()
        return replace(self, pieces=[message._replace(properties=_lengthened(message.properties, added))])


class AppendResult(NamedTuple):
    """The offsets of an append: the log offsets of its records, its first queue offset, and the log's new end."""

    positions: list[int]
    queue_offset: int
    end: int


class Dispatched(NamedTuple):
    """The messages of one append that became readable, and the log offsets of their records."""

    append: Append
    positions: list[int]
    store_ms: int
    end: int


class EncodedRecords(NamedTuple):
    records: bytes
    entries: bytes
    positions: list[int]


def appended_bytes(append: Append) -> int:
    size, hosts, pieces = 0, len(append.born_host) + len(append.store_host), append.pieces
    overhead = FIXED_BYTES + INT.size + hosts + len(topic_part(append.topic)[1])
    if isinstance(pieces, BatchPieces):
        return len(pieces) * overhead + sum(map(len, pieces.bodies)) + sum(map(len, pieces.properties))
    for _, body, properties in pieces:
        size += overhead + len(body) + len(properties)
    return size


def build(
    append: Append, physical_offset: int, queue_offset: int, store_timestamp_ms: int, *, batch_topic: bool = False
) -> EncodedRecords:
    """Encodes an append's records for the log and its queue entries, from a log offset and a queue offset on.

    `batch_topic` selects the entry format of batch topics (batch_queue.py).
    """
    if isinstance(append.pieces, BatchPieces) and not batch_topic and append.delay_ms is None:
        return _build_batch(append, append.pieces, physical_offset, queue_offset, store_timestamp_ms)
    middle, (magic, topic) = _middle(append, store_timestamp_ms), topic_part(append.topic)
    overhead = START.size + len(middle) + INT.size + len(topic)
    due_ms = None if append.delay_ms is None else store_timestamp_ms + append.delay_ms
    queue_id, pack_start, pack_entry, crc32 = append.queue_id, START.pack, ENTRY.pack, zlib.crc32
    records: list[bytes] = []
    entries: list[bytes] = []
    positions: list[int] = []
    for flag, body, properties in append.pieces:
        size = overhead + len(body) + len(properties)
        start = pack_start(size, magic, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, physical_offset)
        records += (start, middle, INT.pack(len(body)), body, topic, properties)
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


def _build_batch(
    append: Append, pieces: BatchPieces, physical_offset: int, queue_offset: int, store_timestamp_ms: int
) -> EncodedRecords:
    # One call packs a field of all messages, which is faster than a call for each message.
    middle, (magic, topic) = _middle(append, store_timestamp_ms), topic_part(append.topic)
    bodies, properties, count = pieces.bodies, pieces.properties, len(pieces)
    overhead, body_sizes = START.size + len(middle) + INT.size + len(topic), [*map(len, bodies)]
    sizes = [overhead + body + own for body, own in zip(body_sizes, map(len, properties), strict=True)]
    positions = [*itertools.accumulate(sizes, initial=physical_offset)]
    positions.pop()
    packed_sizes, places = struct.pack(f">{count}i", *sizes), struct.pack(f">{count}q", *positions)

    head = START.pack(0, magic, 0, append.queue_id, 0, 0, 0) + middle + bytes(INT.size)
    heads, length = bytearray(head * count), len(head)
    crcs = struct.pack(f">{count}I", *[crc & CRC_MASK for crc in map(zlib.crc32, bodies)])
    indexes = struct.pack(f">{count}q", *range(queue_offset, queue_offset + count))
    put_numbers(heads, 0, length, packed_sizes, INT.size)
    put_numbers(heads, CRC_AT, length, crcs, INT.size)
    if any(pieces.flags):
        put_numbers(heads, FLAG_PLACE, length, struct.pack(f">{count}i", *pieces.flags), INT.size)
    put_numbers(heads, QUEUE_OFFSET_POSITION, length, indexes, LONG_BYTES)
    put_numbers(heads, COMMIT_LOG_OFFSET_POSITION, length, places, LONG_BYTES)
    put_numbers(heads, length - INT.size, length, struct.pack(f">{count}i", *body_sizes), INT.size)
    written = bytes(heads)
    starts = [written[at : at + length] for at in range(0, len(written), length)]
    parts = zip(starts, bodies, itertools.repeat(topic), properties, strict=False)

    entries = bytearray(ENTRY.size * count)
    codes = struct.pack(f">{count}q", *[properties_tags_code(own[SHORT.size :]) for own in properties])
    put_numbers(entries, 0, ENTRY.size, places, LONG_BYTES)
    put_numbers(entries, ENTRY_SIZE_AT, ENTRY.size, packed_sizes, INT.size)
    put_numbers(entries, ENTRY_CODE_AT, ENTRY.size, codes, LONG_BYTES)
    return EncodedRecords(b"".join(itertools.chain.from_iterable(parts)), bytes(entries), positions)


def _lengthened(properties: bytes, added: bytes) -> bytes:
    (size,) = SHORT.unpack_from(properties)
    return SHORT.pack(size + len(added)) + properties[SHORT.size :] + added


def entry_of_record(record: RawRecord) -> bytes:
    return ENTRY.pack(record.commit_log_offset, record.store_size, properties_tags_code(record.properties))


def properties_tags_code(properties: bytes) -> int:
    """Returns the hash of the last non-empty TAGS in a properties string, as in Java, or 0 without TAGS."""
    before, mark, after = properties.rpartition(TAGS_INSIDE)
    while mark:
        if tags := after.partition(SEPARATOR)[0]:
            return _hash(tags)
        before, mark, after = before.rpartition(TAGS_INSIDE)
    tags = after[len(TAGS_START) :].partition(SEPARATOR)[0] if after.startswith(TAGS_START) else b""
    return _hash(tags) if tags else 0


@functools.lru_cache(maxsize=4096)
def _hash(tags: bytes) -> int:
    return tags_code(decode_java_utf8(tags))


def _middle(append: Append, store_timestamp_ms: int) -> bytes:
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
    raw = topic.encode()
    if len(raw) <= MAX_V1_TOPIC_BYTES:
        return MAGIC_V1, BYTE.pack(len(raw)) + raw
    return MAGIC_V2, SHORT.pack(len(raw)) + raw
