"""Reads many properties strings at once if they have few layouts. A layout is a list of property names in their order.

Most topics have few layouts, since one program sends all their messages. Strings of one layout differ only in their
values. So only the separators are searched for, and strings with equally many separators are compared with the names in
the first of them. No name is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.arrays import (
    Int32s,
    Ints,
    Octets,
    as_string,
    byte_view,
    offsets_of,
    spans,
    take_unchecked,
    windows,
)

NAME_END: Final = b"\x01"
VALUE_END: Final = b"\x02"
LAST_SEPARATOR: Final = 2
# The most properties of a message, and the most layouts of a topic, for which layouts are used. Usual messages have
# fewer.
MOST_PAIRS: Final = 24
MOST_LAYOUTS: Final = 16
# The first 32 of more than 1,024 strings are examined beforehand, since they mostly show whether there are many
# layouts.
PROBED_STRINGS: Final = 32
PROBED_OF: Final = 32
# An odd number, since multiplying by it keeps different values different.
MIXED_BY: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Layout:
    """A group of properties strings that have the same names in the same order.

    `rows` are the numbers of the strings. `ends` has a row for each string: the positions at which its first name ends,
    its first value, its second name, ...
    """

    names: tuple[bytes, ...]
    rows: Ints | slice
    ends: Int32s

    def value(self, number: int) -> tuple[Int32s, Int32s]:
        return self.ends[:, 2 * number] + 1, self.ends[:, 2 * number + 1]


@dataclass(frozen=True, slots=True)
class LayoutPairs:
    """The properties of `count` messages, grouped by layout. A message in no group has no properties."""

    data: pa.Buffer
    count: int
    layouts: list[Layout]

    def column(self, name: str) -> pa.Array:
        key = name.encode()
        named = [layout for layout in self.layouts if key in layout.names]
        if not named:
            return pa.nulls(self.count, pa.string())
        if len(named) == 1 and len(named[0].ends) == self.count:
            return as_string(spans(self.data, *named[0].value(named[0].names.index(key))))
        starts, ends = np.zeros((2, self.count), np.int32)
        for layout in named:
            starts[layout.rows], ends[layout.rows] = layout.value(layout.names.index(key))
        return as_string(spans(self.data, starts, ends, ends == 0))

    def map(self, takes: Callable[[bytes], bool] = bool) -> pa.Array:
        """Returns each message's properties as a map: all, or only those whose name `takes` accepts."""
        accepted = [[n for n, name in enumerate(layout.names) if takes(name)] for layout in self.layouts]
        offsets = np.zeros(self.count + 1, np.int32)
        for layout, numbers in zip(self.layouts, accepted, strict=True):
            offsets[1:][layout.rows] = len(numbers)
        np.cumsum(offsets, out=offsets)
        starts, ends, codes = np.empty((3, offsets[-1]), np.int32)
        names: list[bytes] = []
        for layout, numbers in zip(self.layouts, accepted, strict=True):
            places = offsets[:-1][layout.rows]
            for place, number in enumerate(numbers):
                starts[places + place], ends[places + place] = layout.value(number)
                codes[places + place] = len(names)
                names.append(layout.names[number])
        keys = take_unchecked(pa.array(names, pa.string()), pa.array(codes))
        return pa.MapArray.from_arrays(pa.array(offsets), keys, as_string(spans(self.data, starts, ends)))


def read_layouts(strings: pa.Array) -> LayoutPairs | None:
    """Returns the properties in `strings`, grouped by layout.

    Returns None for more than 16 layouts, or if a string is not plain: every name and value has a byte or more, no name
    occurs twice, and there are no other separators or zero bytes. `strings` is a binary array of UTF-8 without nulls,
    whose first element begins where its buffer begins.
    """
    bounds, count = offsets_of(strings), len(strings)
    if count > PROBED_OF * PROBED_STRINGS and _show_many(strings[:PROBED_STRINGS].to_pylist()):
        return None
    octets = byte_view(strings)[: bounds[-1]]
    places, firsts = _separators(octets, bounds)
    numbers = np.diff(firsts)
    strings_of = np.bincount(numbers)
    if len(strings_of) > 2 * MOST_PAIRS + 1 or strings_of[1::2].any():
        return None
    layouts: list[Layout] = []
    for number in np.flatnonzero(strings_of).tolist():
        rows: Ints | slice = slice(None)
        if strings_of[number] == count:
            ends = places.reshape(count, number)
        else:
            rows = np.flatnonzero(numbers == number)
            ends = places[firsts[rows, None] + np.arange(number)]
        starts = bounds[:-1][rows]
        if not number:
            if (bounds[1:][rows] != starts).any():
                return None
            continue
        if (ends[:, -1] < bounds[1:][rows] - 1).any():
            return None
        for layout in _split(octets, rows, starts, ends):
            if layout is None or len(layouts) == MOST_LAYOUTS:
                return None
            layouts.append(layout)
    return LayoutPairs(strings.buffers()[2] or pa.py_buffer(b""), count, layouts)


def _show_many(texts: list[bytes]) -> bool:
    names = {tuple(pair.partition(NAME_END)[0] for pair in text.split(VALUE_END)) for text in texts}
    return len(names) > MOST_LAYOUTS


def _separators(octets: Octets, bounds: Int32s) -> tuple[Int32s, Ints]:
    """Returns the positions of all separators, and for each string the index of its first separator among them.

    The indices end with the number of all separators. If a string lacks its last separator, as strings of 4.9 do, the
    string's end is used.
    """
    places: Int32s = np.flatnonzero(octets <= LAST_SEPARATOR).astype(np.int32)
    firsts: Ints = np.searchsorted(places, bounds)
    filled, ends = np.flatnonzero(bounds[1:] > bounds[:-1]), bounds[1:]
    opened = filled[octets[ends[filled] - 1] != LAST_SEPARATOR]
    if len(opened):
        places = np.insert(places, firsts[opened + 1], ends[opened])
        firsts += np.searchsorted(opened, np.arange(len(bounds)))
    return places, firsts


def _split(octets: Octets, rows: Ints | slice, starts: Int32s, ends: Int32s) -> Iterator[Layout | None]:
    whole = _layout(octets, rows, starts, ends)
    if whole is not None:
        yield whole
        return
    codes = pa.array(_signatures(octets, starts, ends)).dictionary_encode()
    if len(codes.dictionary) > MOST_LAYOUTS:
        yield None
        return
    all_rows = np.arange(len(starts)) if isinstance(rows, slice) else rows
    for code in range(len(codes.dictionary)):
        part = np.flatnonzero(codes.indices.to_numpy() == code)
        yield _layout(octets, all_rows[part], starts[part], ends[part])


def _signatures(octets: Octets, starts: Int32s, ends: Int32s) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    mixed = np.zeros(len(starts), np.uint64)
    for number in range(0, ends.shape[1], 2):
        begins = starts if not number else ends[:, number - 1] + 1
        lengths = ends[:, number] - begins
        mixed = mixed * MIXED_BY + lengths.astype(np.uint64)
        for places in (begins, begins + lengths // 2, begins + lengths - 1):
            mixed = mixed * MIXED_BY + octets[np.clip(places, 0, len(octets) - 1)]
    return mixed


def _layout(octets: Octets, rows: Ints | slice, starts: Int32s, ends: Int32s) -> Layout | None:
    """Returns the common layout of some strings, or None if their names differ or a string is not plain."""
    names, begin = [], int(starts[0])
    for name_end, value_end in ends[0].reshape(-1, 2).tolist():
        names.append(octets[begin:name_end].tobytes())
        begin = value_end + 1
    if not all(names) or len(set(names)) < len(names) or (ends[:, 1::2] - ends[:, ::2] < 2).any():
        return None
    for number, name in enumerate(names):
        begins, text = ends[:, 2 * number - 1], VALUE_END + name + NAME_END
        if not number:
            begins, text = starts, text[1:]
        if (ends[:, 2 * number] - begins != len(text) - 1).any():
            return None
        if windows(octets, len(text))[begins].tobytes() != text * len(starts):
            return None
    return Layout(tuple(names), rows, ends)
