"""From what a send brings to the bytes that are appended: records with their offsets, and their queue entries.

The records of a batch are made together, so that they are one write to the log and one to the queue. The bytes are
those of protocol/record.py, which a test compares; what is the same for the whole batch is packed once.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyrmq_core.broker.store.formats import ENTRY
from pyrmq_core.protocol.batch import BatchItem
from pyrmq_core.protocol.java_hash import tags_code
from pyrmq_core.protocol.properties import java_text
from pyrmq_core.protocol.record import (
    BYTE,
    CRC_MASK,
    FIXED,
    MAGIC_V1,
    MAGIC_V2,
    MAX_V1_TOPIC_BYTES,
    SHORT,
)
from pyrmq_core.protocol.sysflag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6

TAGS_START: Final = b"TAGS\x01"
SEPARATOR: Final = b"\x02"


@dataclass(frozen=True, slots=True)
class Append:
    """Messages for one queue, which get consecutive offsets: one, or a batch. Hosts are packed (record.pack_host).

    With `delay_ms` the queue entries hold the store time plus the delay instead of the tags' hash.
    """

    topic: str
    queue_id: int
    items: Sequence[BatchItem]
    born_timestamp_ms: int
    born_host: bytes
    store_host: bytes
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    delay_ms: int | None = None


class Built(NamedTuple):
    """The bytes for log and queue, and where each record begins."""

    records: bytes
    entries: bytes
    positions: list[int]


def appended_bytes(append: Append) -> int:
    """How much of the log it takes."""
    topic = append.topic.encode()
    fixed = FIXED[_host_bits(append)].size + _topic_length(topic).size + len(topic) + SHORT.size
    return sum([fixed + len(body) + len(properties) for _, body, properties in append.items])


def build(append: Append, physical_offset: int, queue_offset: int, store_timestamp_ms: int) -> Built:
    """The bytes when the first record gets these offsets."""
    topic = append.topic.encode()
    sys_flag = append.sys_flag & ~HOSTS_V6 | _host_bits(append)
    fixed = FIXED[sys_flag & HOSTS_V6]
    length = _topic_length(topic)
    topic_part = length.pack(len(topic)) + topic
    overhead = fixed.size + len(topic_part) + SHORT.size
    magic = MAGIC_V1 if length is BYTE else MAGIC_V2
    tail = (append.reconsume_times, append.prepared_transaction_offset)
    born, store, queue_id = append.born_host, append.store_host, append.queue_id
    born_ms, crc32, pack_short = append.born_timestamp_ms, zlib.crc32, SHORT.pack
    due_ms = None if append.delay_ms is None else store_timestamp_ms + append.delay_ms
    records: list[bytes | memoryview] = []
    entries: list[bytes] = []
    positions: list[int] = []
    for flag, body, properties in append.items:
        body_bytes = len(body)
        size = overhead + body_bytes + len(properties)
        crc = crc32(body) & CRC_MASK
        head = (size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms, born)
        records += (
            fixed.pack(*head, store_timestamp_ms, store, *tail, body_bytes),
            body,
            topic_part,
            pack_short(len(properties)),
            properties,
        )
        code = properties_tags_code(properties) if due_ms is None else due_ms
        entries.append(ENTRY.pack(physical_offset, size, code))
        positions.append(physical_offset)
        queue_offset += 1
        physical_offset += size
    return Built(b"".join(records), b"".join(entries), positions)


def properties_tags_code(properties: bytes) -> int:
    """The hash of TAGS in a properties string; of several the last one that is not empty counts, as Java decodes it."""
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
    return tags_code(java_text(tags))


def _host_bits(append: Append) -> int:
    return (BORN_HOST_V6 if len(append.born_host) > 8 else 0) | (STORE_HOST_V6 if len(append.store_host) > 8 else 0)


def _topic_length(topic: bytes) -> struct.Struct:
    return BYTE if len(topic) <= MAX_V1_TOPIC_BYTES else SHORT
