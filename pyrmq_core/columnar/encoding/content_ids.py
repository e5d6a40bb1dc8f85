"""Message ids made of the content and position of rows: the same rows in the same order always get the same ids.

    UNIQ_KEY             here
    ip, process id,      80 bits of a hash over the seed (which write, which part of it), the row's position, and every
    discriminator        column of the row by name
    time                 zero: a query by id then looks from the month's start on
    counter              16 bits more of the hash

A column's bytes are read as words of 8 bytes. Each word is multiplied by a factor that depends on its position, and the
products are added up (multilinear hashing). Columns' sums are added likewise, by factors of their names. All this is
done twice, with different factors. Different rows at the same position share an id with a probability of about 2**-64.
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.columnar.arrays import byte_view, offsets_of
from pyrmq_core.columnar.encoding.row_parts import COUNTERS

Words: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]
# Two independent hashes of each row.
Hashes: TypeAlias = tuple[Words, Words]

WORD_BYTES: Final = 8
# The position of the time in an id, as numbers of two bytes.
TIME: Final = slice(5, 7)
ID_BYTES: Final = 16
# The increment and the multipliers of the hash splitmix64 (Steele, Lea, Flood, 2014).
STEP: Final = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR: Final = np.uint64(0x94D049BB133111EB)
# MASKS[n] keeps the first n bytes of a word.
MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], np.uint64)
NULL: Final = np.uint64(0x6E756C6C)
# The bytes of rows that are hashed at once: they fit into the processor's cache.
BYTES_AT_ONCE: Final = 512 * 1024


def content_ids(rows: pa.RecordBatch, seed: bytes, first: int) -> pa.Array:
    """Returns an id of 32 hexadecimal digits for each row, made from its content, its position and `seed`.

    `seed` names a part of a write, such as a partition of a Spark job. `first` is the position of the first row in it.
    """
    position = np.arange(first, first + rows.num_rows, dtype=np.uint64)
    start = np.frombuffer(hashlib.blake2b(seed, digest_size=16).digest(), np.uint64)
    high, low = position * FIRST_FACTOR + start[0], position * SECOND_FACTOR + start[1]
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        factors = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=16).digest(), np.uint64) | np.uint64(1)
        column_high, column_low = _hashed(column)
        high += column_high * factors[0]
        low += column_low * factors[1]
    return _written(_mixed(high), _mixed(low))


def _hashed(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hashed(column.dictionary_decode())
    if pa.types.is_map(kind):
        names, values = _hashed(column.keys), _hashed(column.items)
        hashes = _folded_lists(column, (names[0] + STEP * _mixed(values[0]), names[1] + STEP * _mixed(values[1])))
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
    """Returns two hashes of each byte string. Strings of similar length are hashed together, padded with zeros."""
    high, low = np.zeros(len(column), np.uint64), np.zeros(len(column), np.uint64)
    bounds, octets = offsets_of(column).astype(np.int64), byte_view(column)
    length = np.diff(bounds)
    words = (length + WORD_BYTES - 1) // WORD_BYTES
    uniform = bool(len(length)) and bool((length == length[0]).all())
    order = (
        None
        if uniform
        else np.argsort(words.astype(np.uint16) if words.max(initial=0) < 1 << 16 else words, kind="stable")
    )
    factors = _factors(int(words.max(initial=0)))
    start = 0
    while start < len(length):
        end = _block_end(words if order is None else words[order], start)
        group = slice(start, end) if order is None else order[start:end]
        matrix = _words_of(octets, bounds[:-1][group], length[group])
        width = matrix.shape[1]
        high[group] = np.einsum("ij,j->i", matrix, factors[0][:width])
        low[group] = np.einsum("ij,j->i", matrix, factors[1][:width])
        start = end
    of_length = length.astype(np.uint64)
    return high + of_length * FIRST_FACTOR, low + of_length * SECOND_FACTOR


def _block_end(words: Ints, start: int) -> int:
    count = max(1, BYTES_AT_ONCE // (WORD_BYTES * max(1, int(words[start]))))
    end = min(start + count, len(words))
    while end - start > 1 and (end - start) * int(words[end - 1]) * WORD_BYTES > 2 * BYTES_AT_ONCE:
        end = start + (end - start) // 2
    return end


def _words_of(octets: npt.NDArray[np.uint8], starts: Ints, length: Ints) -> Words:
    """Returns `octets[start:start + length]` of each row as a row of words, padded with zeros.

    Each word's upper half is mixed into its lower half. Otherwise words that differ only in their highest bits would
    have almost equal products.
    """
    shortest = int(length.min())
    width = (int(length.max()) + WORD_BYTES - 1) // WORD_BYTES
    across = width * WORD_BYTES
    if shortest == across and starts[-1] - starts[0] == across * (len(starts) - 1):  # the rows' bytes are adjacent
        there: Words = octets[starts[0] : starts[-1] + across].view("<u8").reshape(len(starts), width)
        return there ^ (there >> np.uint64(32))
    if starts.max() + across > len(octets):
        begin = int(starts.min())
        octets = np.concatenate((octets[begin:], np.zeros(across, np.uint8)))
        starts = starts - begin
    anywhere: npt.NDArray[np.uint8] = np.ndarray((len(octets) - across + 1, across), np.uint8, octets, strides=(1, 1))
    words: Words = anywhere[starts].view("<u8")
    whole = shortest // WORD_BYTES
    left = length[:, None] - np.arange(whole * WORD_BYTES, across, WORD_BYTES)
    words[:, whole:] &= MASKS[np.clip(left, 0, WORD_BYTES)]
    words ^= words >> np.uint64(32)
    return words


def _folded_lists(column: pa.Array, elements: Hashes) -> Hashes:
    bounds = column.offsets.to_numpy().astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:]
    count = (ends - starts).astype(np.uint64)
    inside = slice(int(starts[0]), int(ends[-1])) if len(starts) else slice(0, 0)
    place = np.arange(inside.start, inside.stop) - np.repeat(starts, ends - starts)
    sums = []
    for words, factors in zip(elements, _factors(int(count.max(initial=0))), strict=True):
        total = np.append(np.uint64(0), np.cumsum(_mixed(words[inside]) * factors[place], dtype=np.uint64))
        sums.append(total[ends - inside.start] - total[starts - inside.start])
    return _mixed(sums[0] + count), _mixed(sums[1] ^ count)


def _factors(count: int) -> Hashes:
    odd = _mixed(np.arange(1, 2 * count + 1, dtype=np.uint64) * STEP) | np.uint64(1)
    return odd[0::2].copy(), odd[1::2].copy()


def _mixed(words: Words) -> Words:
    mixed = (words ^ (words >> np.uint64(30))) * FIRST_FACTOR
    mixed = (mixed ^ (mixed >> np.uint64(27))) * SECOND_FACTOR
    return mixed ^ (mixed >> np.uint64(31))


def _written(high: Words, low: Words) -> pa.Array:
    pairs = np.stack([high, low], axis=1).view(np.uint16)
    pairs[:, TIME] = 0
    digits = COUNTERS.take(pairs)
    bounds = np.arange(len(high) + 1, dtype=np.int32) * (2 * ID_BYTES)
    return pa.StringArray.from_buffers(len(high), pa.py_buffer(bounds), pa.py_buffer(digits))
