"""Properties of many messages at once: their strings to names and values, to a column of one name, to maps.

The rule is `protocol/messages/properties.py`. It also reads, one by one, strings that are not plain pairs in UTF-8 with
each name once.
"""

from __future__ import annotations

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
    name_twice,
    not_utf8,
    offsets_of,
    slices_between,
    spans,
    strided_indices,
    take_unchecked,
)
from pyrmq_core.protocol.messages.properties import decode_properties, java_text

# A name's end and its value's, read as one number.
NAME_AND_VALUE_END: Final = int.from_bytes(b"\x01\x02", "little")
VALUE_END: Final = 2


@dataclass(frozen=True)
class Pairs:
    """The properties of messages, pair after pair in the order of messages; a name stands once in a message.

    `bounds` has four numbers a pair: where in `data` its name and its value begin and end; `counts` the pairs of each
    message. `codes` number the names by `known`; None where each message has all of `known`, in that order.
    """

    data: pa.Buffer
    bounds: Int32s
    counts: Ints
    names: pa.Array
    codes: Int32s | None
    known: dict[bytes, int]

    def column(self, name: str) -> pa.Array:
        """The value that each message has under the name, or null."""
        messages, code = len(self.counts), self.known.get(name.encode())
        if code is None:
            return pa.nulls(messages, pa.string())
        if self.codes is None:
            width = len(self.known)
            return self._taken(strided_indices(4 * width, 4 * code + 2, messages))
        pairs = np.flatnonzero(self.codes == code)
        places = np.full(messages, -1, np.int32)
        places[np.repeat(np.arange(messages), self.counts)[pairs]] = 4 * pairs + 2
        return self._taken(pa.array(places, mask=places < 0))

    def map(self) -> pa.Array:
        """All pairs of each message."""
        values = self._taken(strided_indices(4, 2, len(self.bounds)))
        offsets = np.zeros(len(self.counts) + 1, np.int32)
        np.cumsum(self.counts, out=offsets[1:])
        return pa.MapArray.from_arrays(pa.array(offsets), as_string(self.names), values)

    def _taken(self, places: pa.Array) -> pa.Array:
        return as_string(take_unchecked(self._elements, places))

    @cached_property
    def _elements(self) -> pa.Array:
        """Element 4 i is the name of pair i, 4 i + 2 its value."""
        return _elements(self.data, self.bounds)


def read_pairs(strings: pa.Array) -> Pairs:
    """The pairs of each properties string, given as bytes without nulls, from their buffer's begin."""
    try:
        strings.cast(pa.string())
        wrong = np.zeros(len(strings), np.bool_)
    except pa.ArrowInvalid:
        wrong = not_utf8(strings)
    while True:
        found = _plain_pairs(_emptied(strings, wrong) if wrong.any() else strings)
        if isinstance(found, Pairs):
            return _with_messages(found, strings, wrong) if wrong.any() else found
        wrong |= found


def _plain_pairs(strings: pa.Array) -> Pairs | Bools:
    """The pairs, or which messages are not plain."""
    bounds = offsets_of(strings)
    octets = byte_view(strings)[: bounds[-1]]
    starts, ends = bounds[:-1], bounds[1:]
    places = np.flatnonzero(octets <= VALUE_END).astype(np.int32)
    kinds = octets[places]
    if not kinds.all():  # U+0000 separates nothing
        places, kinds = places[kinds != 0], kinds[kinds != 0]
    open_ends = ends[(ends > starts) & (octets[ends - 1] != VALUE_END)] if len(octets) else ends[:0]
    if len(open_ends):  # 4.9 leaves the last separator out
        at = np.searchsorted(places, open_ends)
        places, kinds = np.insert(places, at, open_ends), np.insert(kinds, at, VALUE_END)
    if len(kinds) % 2 or (kinds.view("<u2") != NAME_AND_VALUE_END).any():
        return _out_of_turn(bounds, places, kinds, open_ends)
    pairs = np.empty((len(places) // 2, 4), np.int32)
    pairs[:, 1], pairs[:, 3] = places[::2], places[1::2]
    pairs[:1, 0], pairs[1:, 0], pairs[:, 2] = 0, pairs[:-1, 3] + 1, pairs[:, 1] + 1
    counts = _counts(bounds, pairs)
    if len(open_ends):
        firsts = np.cumsum(counts) - counts
        pairs[firsts[counts > 0], 0] = starts[counts > 0]
    empty = (pairs[:, 0] >= pairs[:, 1]) | (pairs[:, 2] >= pairs[:, 3])
    if empty.any():
        return _messages_of(counts, empty)
    return _named(strings.buffers()[2] or pa.py_buffer(b""), pairs, counts)


def _counts(bounds: Int32s, pairs: Int32s) -> Ints:
    """The pairs of each message."""
    messages = len(bounds) - 1
    each, rest = divmod(len(pairs), messages) if messages else (0, 0)
    if each and not rest:
        value_ends = pairs[each - 1 :: each, 3]
        if ((value_ends == bounds[1:] - 1) | (value_ends == bounds[1:])).all():
            return np.full(messages, each)
    return np.diff(np.searchsorted(pairs[:, 1], bounds))


def _named(data: pa.Buffer, pairs: Int32s, counts: Ints) -> Pairs | Bools:
    """The pairs with their names looked at: which they are, and that none stands twice in a message."""
    names = take_unchecked(_elements(data, pairs), strided_indices(4, 0, len(pairs)))
    if (known := _names_of_all(names, pairs, counts)) is not None:
        if len(set(known)) < len(known):
            return np.ones(len(counts), np.bool_)
        return Pairs(data, pairs, counts, names, None, {name: code for code, name in enumerate(known)})
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy()
    twice = name_twice(codes, counts, len(encoded.dictionary))
    if twice.any():
        return twice
    return Pairs(data, pairs, counts, names, codes, {n: code for code, n in enumerate(encoded.dictionary.to_pylist())})


def _names_of_all(names: pa.Array, pairs: Int32s, counts: Ints) -> list[bytes] | None:
    """The names that every message has, in the same order; None when they differ."""
    if not len(pairs) or counts.min() != counts.max():
        return None
    lengths = (pairs[:, 1] - pairs[:, 0]).reshape(len(counts), -1)
    if (lengths != lengths[0]).any():
        return None
    letters = byte_view(names)[: offsets_of(names)[-1]].reshape(len(counts), -1)
    if (letters != letters[0]).any():
        return None
    return [name.as_py() for name in names[: lengths.shape[1]]]


def _out_of_turn(bounds: Int32s, places: Int32s, kinds: Octets, open_ends: Int32s) -> Bools:
    """The messages in which a name's end and a value's end do not take turns."""
    inside = places - np.isin(places, open_ends) * (kinds == VALUE_END)
    message = np.searchsorted(bounds[1:], inside, side="right")
    counts = np.bincount(message, minlength=len(bounds) - 1)
    number = np.arange(len(places)) - (np.cumsum(counts) - counts)[message]
    wrong: Bools = counts % 2 == 1
    wrong[message[kinds != 1 + number % 2]] = True
    return wrong


def _messages_of(counts: Ints, pairs: Bools) -> Bools:
    """The messages of the marked pairs."""
    messages = np.zeros(len(counts), np.bool_)
    messages[np.repeat(np.arange(len(counts)), counts)[pairs]] = True
    return messages


def _emptied(strings: pa.Array, wrong: Bools) -> pa.Array:
    """The strings, those that are wrong empty."""
    bounds = offsets_of(strings).astype(np.int64)
    return spans(strings.buffers()[2], bounds[:-1], np.where(wrong, bounds[:-1], bounds[1:]))


def _with_messages(found: Pairs, strings: pa.Array, wrong: Bools) -> Pairs:
    """The pairs of the wrong messages among the others', read one message after another."""
    parts: list[bytes | memoryview] = [memoryview(found.data)]
    counts, bounds = found.counts.copy(), []
    place = len(found.data)
    messages = np.flatnonzero(wrong)
    for message in messages.tolist():
        properties = decode_properties(java_text(strings[message].as_py()))
        counts[message] = len(properties)
        for name, value in properties.items():
            pair = name.encode(), value.encode()
            middle = place + len(pair[0])
            bounds.append((place, middle, middle, place := middle + len(pair[1])))
            parts += pair
    owner = np.concatenate(
        (np.repeat(np.arange(len(counts)), found.counts), np.repeat(messages, counts[messages])),
    )
    all_rows = np.concatenate((found.bounds, np.array(bounds, np.int32).reshape(-1, 4)))
    merged = _named(pa.py_buffer(b"".join(parts)), all_rows[np.argsort(owner, kind="stable")], counts)
    assert isinstance(merged, Pairs)  # a dict has no name twice
    return merged


def _elements(data: pa.Buffer, pairs: Int32s) -> pa.Array:
    """Element 4 i is the name of pair i, 4 i + 2 its value; what lies between is never taken."""
    return slices_between(data, pairs.ravel() if len(pairs) else np.zeros(1, np.int32))
