"""Reads the properties strings of many messages at once into columns: the values of one property, or maps.

The format is that of `protocol/messages/properties.py`. That module reads one by one the strings that are not UTF-8, do
not alternate names and values, or have a name twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.arrays import (
    Bools,
    Int32s,
    Ints,
    Octets,
    as_string,
    byte_view,
    is_utf8,
    name_twice,
    not_utf8,
    offsets_of,
    slices_between,
    spans,
    strided_indices,
    take_unchecked,
)
from pyrmq_core.columnar.decoding.layouts import LayoutPairs, read_layouts
from pyrmq_core.protocol.messages.properties import decode_java_utf8, decode_properties

# The separators after a name and after its value, as one number.
NAME_AND_VALUE_END: Final = int.from_bytes(b"\x01\x02", "little")
VALUE_END: Final = 2


@dataclass(frozen=True)
class Pairs:
    """The properties of messages as name-value pairs, in the order of the messages. A message has no name twice.

    An example: three messages, the second without properties. 1 and 2 mean the separators 0x01 and 0x02.

        place     0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17
        data      T  A  G  S  1  a  2  K  1  v  2  T  A  G  S  1  b  2
        message  |0------------------------------|2------------------|

        counts    2  0  1           the pairs of each message
        bounds    0  4  5  6        pair 0: data[0:4] is its name, data[5:6] its value
                  7  8  9 10        pair 1
                 11 15 16 17        pair 2
        names    TAGS  K  TAGS      the name of each pair
        known    {TAGS: 0, K: 1}    each different name, numbered
        codes    0     1  0         the number of each pair's name
    """

    data: pa.Buffer
    bounds: Int32s
    counts: Ints
    names: pa.Array
    codes: Int32s
    known: dict[bytes, int]

    def column(self, name: str) -> pa.Array:
        messages, code = len(self.counts), self.known.get(name.encode())
        if code is None:
            return pa.nulls(messages, pa.string())
        pairs = np.flatnonzero(self.codes == code)
        places = np.full(messages, -1, np.int32)
        places[np.repeat(np.arange(messages), self.counts)[pairs]] = 4 * pairs + 2
        return self._taken(pa.array(places, mask=places < 0))

    def map(self, takes: Callable[[bytes], bool] = bool) -> pa.Array:
        """Returns each message's properties as a map: all, or only those whose name `takes` accepts."""
        accepted = [code for name, code in self.known.items() if takes(name)]
        names, counts, places = self.names, self.counts, strided_indices(4, 2, len(self.bounds))
        if len(accepted) < len(self.known):
            pairs, counts = self._pairs_of(accepted)
            names, places = take_unchecked(names, pa.array(pairs)), pa.array(4 * pairs + 2)
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        return pa.MapArray.from_arrays(pa.array(offsets), as_string(names), self._taken(places))

    def _pairs_of(self, codes: list[int]) -> tuple[Int32s, Ints]:
        messages = len(self.counts)
        pairs = np.flatnonzero(np.isin(self.codes, codes)).astype(np.int32)
        owners = np.repeat(np.arange(messages), self.counts)[pairs]
        return pairs, np.bincount(owners, minlength=messages)

    def _taken(self, places: pa.Array) -> pa.Array:
        return as_string(take_unchecked(self._elements, places))

    @cached_property
    def _elements(self) -> pa.Array:
        return _elements(self.data, self.bounds)


def read_pairs(strings: pa.Array) -> Pairs | LayoutPairs:
    """Returns the properties in `strings`, as `LayoutPairs` if most messages have the same names, else as `Pairs`.

    `strings` is a binary array without nulls, whose first element begins where its buffer begins.
    """
    if is_utf8(strings):
        if (of_layouts := read_layouts(strings)) is not None:
            return of_layouts
        wrong = np.zeros(len(strings), np.bool_)
    else:
        wrong = not_utf8(strings)
    while True:
        pairs = _plain_pairs(_emptied(strings, wrong) if wrong.any() else strings)
        if isinstance(pairs, Pairs):
            return _with_messages(pairs, strings, wrong) if wrong.any() else pairs
        wrong |= pairs


def _plain_pairs(strings: pa.Array) -> Pairs | Bools:
    """Returns the properties of all messages. If some strings are not plain, returns a mask of such messages instead.

    In a plain string, names and values alternate, none is empty, and no name occurs twice. The mask may miss some
    strings that are not plain.
    """
    bounds = offsets_of(strings)
    octets = byte_view(strings)[: bounds[-1]]
    starts, ends = bounds[:-1], bounds[1:]
    places = np.flatnonzero(octets <= VALUE_END).astype(np.int32)
    kinds = octets[places]
    if not kinds.all():  # 0x00 is not a separator
        places, kinds = places[kinds != 0], kinds[kinds != 0]
    open_ends = ends[(ends > starts) & (octets[ends - 1] != VALUE_END)] if len(octets) else ends[:0]
    if len(open_ends):  # 4.9 leaves out the last separator
        at = np.searchsorted(places, open_ends)
        places, kinds = np.insert(places, at, open_ends), np.insert(kinds, at, VALUE_END)
    if len(kinds) % 2 or (kinds.view("<u2") != NAME_AND_VALUE_END).any():
        return _out_of_turn(bounds, places, kinds, open_ends)
    pairs = np.empty((len(places) // 2, 4), np.int32)
    pairs[:, 1], pairs[:, 3] = places[::2], places[1::2]
    pairs[:1, 0], pairs[1:, 0], pairs[:, 2] = 0, pairs[:-1, 3] + 1, pairs[:, 1] + 1
    counts = np.diff(np.searchsorted(pairs[:, 1], bounds))
    if len(open_ends):
        firsts = np.cumsum(counts) - counts
        pairs[firsts[counts > 0], 0] = starts[counts > 0]
    empty = (pairs[:, 0] >= pairs[:, 1]) | (pairs[:, 2] >= pairs[:, 3])
    if empty.any():
        return _messages_of(counts, empty)
    return _named(strings.buffers()[2] or pa.py_buffer(b""), pairs, counts)


def _named(data: pa.Buffer, pairs: Int32s, counts: Ints) -> Pairs | Bools:
    names = take_unchecked(_elements(data, pairs), strided_indices(4, 0, len(pairs)))
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy()
    twice = name_twice(codes, counts, len(encoded.dictionary))
    if twice.any():
        return twice
    return Pairs(data, pairs, counts, names, codes, {n: code for code, n in enumerate(encoded.dictionary.to_pylist())})


def _out_of_turn(bounds: Int32s, places: Int32s, kinds: Octets, open_ends: Int32s) -> Bools:
    inside = places - np.isin(places, open_ends) * (kinds == VALUE_END)
    message = np.searchsorted(bounds[1:], inside, side="right")
    counts = np.bincount(message, minlength=len(bounds) - 1)
    number = np.arange(len(places)) - (np.cumsum(counts) - counts)[message]
    wrong: Bools = counts % 2 == 1
    wrong[message[kinds != 1 + number % 2]] = True
    return wrong


def _messages_of(counts: Ints, pairs: Bools) -> Bools:
    messages = np.zeros(len(counts), np.bool_)
    messages[np.repeat(np.arange(len(counts)), counts)[pairs]] = True
    return messages


def _emptied(strings: pa.Array, wrong: Bools) -> pa.Array:
    bounds = offsets_of(strings).astype(np.int64)
    return spans(strings.buffers()[2], bounds[:-1], np.where(wrong, bounds[:-1], bounds[1:]))


def _with_messages(read: Pairs, strings: pa.Array, wrong: Bools) -> Pairs:
    parts: list[bytes | memoryview] = [memoryview(read.data)]
    counts, bounds = read.counts.copy(), []
    place = len(read.data)
    messages = np.flatnonzero(wrong)
    for message in messages.tolist():
        properties = decode_properties(decode_java_utf8(strings[message].as_py()))
        counts[message] = len(properties)
        for name, value in properties.items():
            pair = name.encode(), value.encode()
            middle = place + len(pair[0])
            bounds.append((place, middle, middle, place := middle + len(pair[1])))
            parts += pair
    owner = np.concatenate(
        (np.repeat(np.arange(len(counts)), read.counts), np.repeat(messages, counts[messages])),
    )
    all_rows = np.concatenate((read.bounds, np.array(bounds, np.int32).reshape(-1, 4)))
    merged = _named(pa.py_buffer(b"".join(parts)), all_rows[np.argsort(owner, kind="stable")], counts)
    assert isinstance(merged, Pairs)  # names from a dict do not repeat
    return merged


def _elements(data: pa.Buffer, pairs: Int32s) -> pa.Array:
    """Returns the names and values of all pairs as one array: element 4 i is the name of pair i, and 4 i + 2 its value.

    Elements with odd numbers have no meaning, and no caller reads them.
    """
    return slices_between(data, pairs.ravel() if len(pairs) else np.zeros(1, np.int32))
