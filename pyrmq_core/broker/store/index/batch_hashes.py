"""The entries of many messages: the hashes of their keys by columns, where properties differ only within values.

Messages of one producer usually do. Column k of a batch is the k-th byte of each message's properties. A hash is a sum
of 31**n times the n-th character from the end, so equal columns are added once for the whole batch, and each other
column is one multiplication of a large integer, in which every message has a lane of 64 bits. `record_hashes` is the
plain form: a test compares the two.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

from pyrmq_core.broker.store.index.entries import Entries, KeyColumns
from pyrmq_core.broker.store.index.key_hashes import (
    PAIR_END,
    TAG_TYPE,
    WORD_END,
    WORDS,
    KeySpan,
    index_key,
    key_hash,
    key_spans,
    pairs,
    record_hashes,
)
from pyrmq_core.protocol.java.string_hash import string_hash_code
from pyrmq_core.protocol.messages.properties import decode_java_utf8
from pyrmq_core.protocol.messages.record import SHORT

LANE_BYTES: Final = 8
MOST_MESSAGES: Final = 4096
FEWEST_MESSAGES: Final = 16
MASK: Final = 0xFFFFFFFF


class Message(NamedTuple):
    """A message that enters the index: `properties` begin with their length, as in a batch body."""

    topic: str
    properties: bytes
    offset: int
    time_ms: int


def key_columns(
    topic: str, properties: Sequence[bytes], offsets: Sequence[int], times_ms: Sequence[int]
) -> KeyColumns | None:
    """Returns the entries of a topic's messages by columns; None if they are few, or of several lengths or forms."""
    hashes = column_hashes(topic, properties)
    return None if hashes is None else KeyColumns(hashes, offsets, times_ms)


def mixed_entries(messages: Sequence[Message]) -> Entries:
    """Returns the entries of any messages, in their order; those of one topic and length are tried together."""
    by_size: dict[tuple[str, int], list[int]] = {}
    for number, message in enumerate(messages):
        by_size.setdefault((message.topic, len(message.properties)), []).append(number)
    found_rows = list[Sequence[int]]([()] * len(messages))
    for (topic, _), numbers in by_size.items():
        columns = column_hashes(topic, [messages[number].properties for number in numbers])
        if columns is None:
            for number in numbers:
                found_rows[number] = record_hashes(topic, messages[number].properties[SHORT.size :])
        elif columns:
            filled = [repeat(column, len(numbers)) if isinstance(column, int) else column for column in columns]
            for number, *row in zip(numbers, *filled, strict=True):
                found_rows[number] = row
    entries = Entries([], [], [])
    for hashes, message in zip(found_rows, messages, strict=True):
        entries.hashes.extend(hashes)
        entries.offsets.extend([message.offset] * len(hashes))
        entries.times_ms.extend([message.time_ms] * len(hashes))
    return entries


def next_part(message: Message, entered: int, most: int) -> tuple[Entries, int]:
    """Returns up to `most` further entries of a message, and the number entered by then; 0 at the message's end."""
    hashes = record_hashes(message.topic, message.properties[SHORT.size :], entered, most)
    entries = Entries(hashes, [message.offset] * len(hashes), [message.time_ms] * len(hashes))
    return entries, entered + most if len(hashes) == most else 0


def column_hashes(topic: str, properties: Sequence[bytes]) -> list[int | Sequence[int]] | None:
    """Returns for each key of the first message the hash that all have, or those of all messages.

    None if the messages are few, or of several lengths or forms.
    """
    count, size = len(properties), len(properties[0])
    if not FEWEST_MESSAGES <= count <= MOST_MESSAGES or [*map(len, properties)].count(size) != count:
        return None
    first, joined = properties[0][SHORT.size :], b"".join(properties)
    differing: dict[int, bytes] = {}
    for at in range(len(first)):
        column = joined[SHORT.size + at :: size]
        if column != column[:1] * count:
            differing[at] = column
    wanted = key_spans(first)
    if not _has_one_form(first, wanted, differing):
        return None
    return [_hashes_at(topic, first, place, differing, count) for place in wanted]


def _has_one_form(first: bytes, wanted: Sequence[KeySpan], differing: dict[int, bytes]) -> bool:
    """Returns True if the differing columns lie within values, and change neither where these end nor their words."""
    free, words = set[int](), set[int]()
    for name, start, end in pairs(first):
        free.update(range(start, end))
        if name == WORDS:
            words.update(range(start, end))
    for at, column in differing.items():
        if at not in free or PAIR_END in column or (at in words and WORD_END in column):
            return False
    for start, end, _ in wanted:  # one byte is one character
        columns = [differing[at] for at in range(start, end) if at in differing]
        if columns and not (first[start:end].isascii() and all(column.isascii() for column in columns)):
            return False
    return True


def _hashes_at(
    topic: str, first: bytes, place: KeySpan, differing: dict[int, bytes], count: int
) -> int | Sequence[int]:
    """Returns the hash of the key at a place if it is the same in each message, else those of the messages."""
    start, end, is_tag = place
    key = index_key(topic, decode_java_utf8(first[start:end]), TAG_TYPE if is_tag else None)
    columns = {at: differing[at] for at in range(start, end) if at in differing}
    if not columns:
        return key_hash(key)
    ones = _ones(count)
    base, lanes = string_hash_code(key), 0
    for at, column in columns.items():
        power = _power(end - 1 - at)
        base -= first[at] * power
        spread = bytearray(LANE_BYTES * count)
        spread[LANE_BYTES - 1 :: LANE_BYTES] = column
        lanes += int.from_bytes(spread) * power
    lanes = (lanes + ones * (base & MASK)) & ones * MASK
    signs = lanes >> 31 & ones
    lanes = (lanes ^ signs * MASK) + signs & ones * (MASK >> 1)
    return struct.unpack(f">{count}Q", lanes.to_bytes(LANE_BYTES * count))


@functools.lru_cache(maxsize=64)
def _ones(count: int) -> int:
    """Returns a number with 1 in each lane."""
    return int.from_bytes(bytes([0] * (LANE_BYTES - 1) + [1]) * count)


@functools.lru_cache(maxsize=4096)
def _power(exponent: int) -> int:
    return pow(31, exponent, MASK + 1)
