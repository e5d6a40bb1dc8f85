"""The entries of records that enter the index, one by one or by columns, and their bytes.

`KeyColumns` are for messages with one number of keys, as those of one producer: column k has the k-th key of each. The
bytes of both forms are equal: a test compares the two. The layout of an entry stands in `index_file`.
"""

from __future__ import annotations

import functools
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

# The words of 4 bytes in an entry: the hash, two of the log offset, the seconds, and the previous entry.
WORDS: Final = 5
HASH, OFFSET_HIGH, OFFSET_LOW, SECONDS, PREVIOUS = range(WORDS)
WORD: Final = "I"
WORD_BITS: Final = 32
WORD_MASK: Final = (1 << WORD_BITS) - 1
# A power of 2: the entries that are packed in one step.
ENTRIES_AT_ONCE: Final = 1024


class Entries(NamedTuple):
    """The entries of records, in the order in which they enter the index: for each a hash, a log offset, a time."""

    hashes: list[int]
    offsets: list[int]
    times_ms: list[int]


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The entries of messages with as many keys each: a column is the hash that all have, or those of the messages.

    Offsets and times are the messages'.
    """

    hashes: Sequence[int | Sequence[int]]
    offsets: Sequence[int]
    times_ms: Sequence[int]

    @property
    def count(self) -> int:
        """The number of entries."""
        return len(self.hashes) * len(self.offsets)

    def one_by_one(self) -> Entries:
        keys = len(self.hashes)
        columns = [[column] * len(self.offsets) if isinstance(column, int) else column for column in self.hashes]
        return Entries(interleaved(columns), interleaved([self.offsets] * keys), interleaved([self.times_ms] * keys))


def interleaved(columns: Sequence[Sequence[int]]) -> list[int]:
    """Returns the columns' values row by row: the first of each column, then the second of each."""
    if not columns:
        return []
    rows = [0] * (len(columns) * len(columns[0]))
    for at, column in enumerate(columns):
        rows[at :: len(columns)] = column
    return rows


def packed(*fields: Sequence[int]) -> bytes:
    """Returns the bytes of entries from their hashes, log offsets, seconds and previous entries."""
    flat = interleaved(fields)
    pieces, at, size = [], 0, ENTRIES_AT_ONCE * len(fields)
    while at < len(flat):
        while at + size > len(flat):
            size //= 2
        pieces.append(_packing(size // len(fields)).pack(*flat[at : at + size]))
        at += size
    return b"".join(pieces)


def packed_columns(
    hashes: Sequence[int | Sequence[int]],
    offsets: Sequence[int],
    seconds: Sequence[int],
    previous: Sequence[Sequence[int]],
) -> bytes:
    """Returns the bytes of the entries of `KeyColumns`, from each message's seconds and each key's previous entries."""
    keys, count = len(hashes), len(offsets)
    high, low = [offset >> WORD_BITS for offset in (offsets[0], offsets[-1])], _low_words(offsets)
    message = array(WORD, bytes(array(WORD).itemsize * WORDS * keys))
    for key, column in enumerate(hashes):
        message[WORDS * key + HASH] = column if isinstance(column, int) else 0
        message[WORDS * key + OFFSET_HIGH] = high[0]
        message[WORDS * key + SECONDS] = seconds[0]
    words = message * count
    has_one_second = seconds[0] == seconds[-1] and list(seconds).count(seconds[0]) == count
    for key, column in enumerate(hashes):
        first = WORDS * key
        if not isinstance(column, int):
            words[first + HASH :: len(message)] = array(WORD, column)
        if high[0] != high[1]:
            words[first + OFFSET_HIGH :: len(message)] = array(WORD, [offset >> WORD_BITS for offset in offsets])
        words[first + OFFSET_LOW :: len(message)] = low
        if not has_one_second:
            words[first + SECONDS :: len(message)] = array(WORD, seconds)
        words[first + PREVIOUS :: len(message)] = array(WORD, previous[key])
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()


def _low_words(offsets: Sequence[int]) -> array[int]:
    if offsets[-1] <= WORD_MASK:
        return array(WORD, offsets)
    return array(WORD, [offset & WORD_MASK for offset in offsets])


@functools.lru_cache
def _packing(count: int) -> struct.Struct:
    return struct.Struct(">" + "iqii" * count)
