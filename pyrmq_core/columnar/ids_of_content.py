"""Message ids made of what rows hold and where they stand: a repeat of the same rows in the same order has them again.

    UNIQ_KEY             here
    ip, process id,      96 bits of a hash over the seed (which write, which part of it), the row's position, and every
    discriminator        column of the row by name; then
    time                 zero: a query by id then looks from the month's start on
    counter              2 bytes more of the hash

A column's bytes are taken as words of 8, each multiplied by a number of its place and added up (multilinear hashing),
twice with other numbers. Two contents at one place share an id with a chance of about 2**-64.
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]
# Two independent hashes of each row.
Hashes: TypeAlias = tuple[Words, Words]

WORD_BYTES: Final = 8
TIME: Final = slice(10, 14)
ID_BYTES: Final = 16
# splitmix64 (Steele, Lea, Flood, 2014).
STEP: Final = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR: Final = np.uint64(0x94D049BB133111EB)
# The bits of a word that its first n bytes take.
MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], np.uint64)
DIGITS: Final = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), np.uint16)
NULL: Final = np.uint64(0x6E756C6C)
BYTES_AT_ONCE: Final = 128 * 1024
ROWS_AT_ONCE: Final = 4096


def content_ids(rows: pa.RecordBatch, seed: bytes, first: int) -> pa.Array:
    """A string of 32 digits for each row; `first` is the position of the first one in what `seed` stands for."""
    position = np.arange(first, first + rows.num_rows, dtype=np.uint64)
    start = np.frombuffer(hashlib.blake2b(seed, digest_size=16).digest(), np.uint64)
    one, two = _mixed(position + start[0]), _mixed(position ^ start[1])
    for name, column in sorted(zip(rows.schema.names, rows.columns, strict=True), key=lambda named: named[0]):
        salt = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=16).digest(), np.uint64)
        of_one, of_two = _hashed(column)
        one, two = _mixed(one ^ _mixed(of_one + salt[0])), _mixed(two ^ _mixed(of_two + salt[1]))
    return _written(one, two)


def _hashed(column: pa.Array) -> Hashes:
    """Each element by its content; null is a value of its own."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hashed(column.dictionary_decode())
    if pa.types.is_map(kind):
        names, values = _hashed(column.keys), _hashed(column.items)
        hashes = _folded_lists(column, (_mixed(names[0] ^ _mixed(values[0])), _mixed(names[1] ^ _mixed(values[1]))))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        hashes = _folded_lists(column, _hashed(column.values))
    elif pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        number = pc.fill_null(column.cast(pa.int64()), 0).to_numpy().view(np.uint64)
        hashes = _mixed(number), _mixed(number + STEP)
    else:
        hashes = _folded_bytes(column.cast(pa.binary()))
    if column.null_count:
        there = column.is_valid().to_numpy(zero_copy_only=False)
        hashes = np.where(there, hashes[0], NULL), np.where(there, hashes[1], NULL)
    return hashes


def _folded_bytes(column: pa.Array) -> Hashes:
    """Some rows at a time: what is computed for them stays near the processor, which takes two thirds of the time."""
    one, two = np.zeros(len(column), np.uint64), np.zeros(len(column), np.uint64)
    if not len(column):
        return one, two
    offsets, data = column.buffers()[1:]
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    octets = np.frombuffer(data or b"", np.uint8)
    start = 0
    while start < len(column):
        end = max(start + 1, int(np.searchsorted(bounds, bounds[start] + BYTES_AT_ONCE, side="right")) - 1)
        end = min(end, start + ROWS_AT_ONCE)
        one[start:end], two[start:end] = _folded_spans(octets, bounds[start : end + 1])
        start = end
    return one, two


def _folded_spans(data: npt.NDArray[np.uint8], bounds: Ints) -> Hashes:
    """Of `data[bounds[i]:bounds[i + 1]]`; the last word of each is filled with zeros."""
    octets, length = data[bounds[0] : bounds[-1]], np.diff(bounds)
    alike = bool((length == length[0]).all())
    one, two = _folded_alike(octets, len(length)) if alike else _folded_any(octets, bounds[:-1] - bounds[0], length)
    of_length = length.astype(np.uint64)
    return _mixed(one + of_length), _mixed(two ^ of_length)


def _folded_alike(octets: npt.NDArray[np.uint8], count: int) -> Hashes:
    """Spans of one length, as a matrix: a third of the time."""
    length = len(octets) // count
    width = max(1, (length + WORD_BYTES - 1) // WORD_BYTES)
    filled = np.zeros((count, width * WORD_BYTES), np.uint8)
    filled[:, :length] = octets.reshape(count, length)
    words = _spread(filled.view("<u8"))
    one, two = (np.einsum("ij,j->i", words, factors) for factors in _factors(width))
    return one, two


def _folded_any(octets: npt.NDArray[np.uint8], starts: Ints, length: Ints) -> Hashes:
    """A word that goes beyond a row's end is read, and masked."""
    readable = np.append(octets, np.zeros(WORD_BYTES, np.uint8))
    words_of = np.maximum(1, (length + WORD_BYTES - 1) // WORD_BYTES)
    last = np.cumsum(words_of) - 1
    first = last + 1 - words_of
    place = np.arange(last[-1] + 1) - np.repeat(first, words_of)
    anywhere: Words = np.ndarray((len(octets) + 1,), "<u8", readable.data, strides=(1,))
    words = anywhere[np.repeat(starts, words_of) + WORD_BYTES * place]
    words[last] &= MASKS[length - WORD_BYTES * (words_of - 1)]
    words = _spread(words)
    one, two = (np.add.reduceat(words * factors[place], first) for factors in _factors(int(words_of.max())))
    return one, two


def _spread(words: Words) -> Words:
    """A difference in the highest bits would stay there when multiplied, and count for little."""
    return words ^ (words >> np.uint64(32))


def _folded_lists(column: pa.Array, elements: Hashes) -> Hashes:
    """`elements` are those of all lists beneath the column."""
    bounds = column.offsets.to_numpy().astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:]
    count = (ends - starts).astype(np.uint64)
    inside = np.arange(starts[0], ends[-1]) if len(starts) else np.empty(0, np.int64)
    place = inside - np.repeat(starts, ends - starts)
    sums = []
    for some, factors in zip(elements, _factors(int(count.max(initial=0))), strict=True):
        total = np.append(np.uint64(0), np.cumsum(some[inside] * factors[place], dtype=np.uint64))
        sums.append(total[ends - bounds[0]] - total[starts - bounds[0]])
    return _mixed(sums[0] + count), _mixed(sums[1] ^ count)


def _factors(count: int) -> Hashes:
    """Of the first `count` places, for each of the two hashes."""
    odd = _mixed(np.arange(1, 2 * count + 1, dtype=np.uint64) * STEP) | np.uint64(1)
    return odd[0::2], odd[1::2]


def _mixed(words: Words) -> Words:
    """splitmix64's last steps: every bit of a word depends on all of them."""
    mixed = (words ^ (words >> np.uint64(30))) * FIRST_FACTOR
    mixed = (mixed ^ (mixed >> np.uint64(27))) * SECOND_FACTOR
    return mixed ^ (mixed >> np.uint64(31))


def _written(one: Words, two: Words) -> pa.Array:
    octets = np.stack([one, two], axis=1).view(np.uint8)
    octets[:, TIME] = 0
    digits = np.ascontiguousarray(DIGITS[octets])
    bounds = np.arange(len(one) + 1, dtype=np.int32) * (2 * ID_BYTES)
    return pa.StringArray.from_buffers(len(one), pa.py_buffer(bounds), pa.py_buffer(digits))
