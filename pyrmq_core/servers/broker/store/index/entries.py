"""Messages that enter the index, and their index entries. The layout of an entry is in `index_file`."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from pyrmq_core.protocol.messages.record import SHORT
from pyrmq_core.servers.broker.store.index.key_hashes import record_hashes

# How many entries `packed` encodes together, a power of 2. It is halved again and again for the entries that are left.
ENTRIES_AT_ONCE: Final = 1024


class Entries(NamedTuple):
    """New index entries, in order: for each the hash of a key, a log offset, and a store time in ms."""

    hashes: list[int]
    offsets: list[int]
    times_ms: list[int]


class Message(NamedTuple):
    """A message that enters the index. Its `properties` begin with their length, as in a batch body."""

    topic: str
    properties: bytes
    offset: int
    time_ms: int


def entries_of(messages: Sequence[Message]) -> Entries:
    entries = Entries([], [], [])
    for topic, properties, offset, time_ms in messages:
        hashes = record_hashes(topic, properties[SHORT.size :])
        entries.hashes.extend(hashes)
        entries.offsets.extend([offset] * len(hashes))
        entries.times_ms.extend([time_ms] * len(hashes))
    return entries


def next_part(message: Message, entered: int, most: int) -> tuple[Entries, int]:
    """Returns at most `most` index entries of a message, after the first `entered`.

    Also returns how many of its entries were returned so far, or 0 if it has no more.
    """
    hashes = record_hashes(message.topic, message.properties[SHORT.size :], entered, most)
    entries = Entries(hashes, [message.offset] * len(hashes), [message.time_ms] * len(hashes))
    return entries, entered + most if len(hashes) == most else 0


def interleaved(columns: Sequence[Sequence[int]]) -> list[int]:
    if not columns:
        return []
    rows = [0] * (len(columns) * len(columns[0]))
    for at, column in enumerate(columns):
        rows[at :: len(columns)] = column
    return rows


def packed(*fields: Sequence[int]) -> bytes:
    flat = interleaved(fields)
    pieces, at, size = [], 0, ENTRIES_AT_ONCE * len(fields)
    while at < len(flat):
        while at + size > len(flat):
            size //= 2
        pieces.append(_packing(size // len(fields)).pack(*flat[at : at + size]))
        at += size
    return b"".join(pieces)


@functools.lru_cache
def _packing(count: int) -> struct.Struct:
    return struct.Struct(">" + "iqii" * count)
