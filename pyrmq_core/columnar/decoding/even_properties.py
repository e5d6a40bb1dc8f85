"""The pairs of properties strings that have one size and one layout, as those of most topics have.

Each name and value then lies at one place in every string, so columns are copied by strides: no separator is searched
for, and no pair has a place of its own. All columns and the map take a third to a half of the time by
`property_layout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.arrays import (
    Octets,
    as_string,
    byte_view,
    even_spans,
    offsets_of,
    slices_between,
    strided,
)
from pyrmq_core.columnar.decoding.property_layout import LAST_SEPARATOR, NAME_END, VALUE_END, split_pairs

# To compare strings in vain takes some ten microseconds.
FEWEST_STRINGS: Final = 256


@dataclass(frozen=True, slots=True)
class EvenPairs:
    """The properties of `count` messages: `octets` is their strings, one behind another, each of `size` bytes.

    `values` has the names in their order, and for each the place of its value in every string and the value's bytes.
    """

    octets: Octets
    size: int
    count: int
    values: dict[bytes, tuple[int, int]]

    def column(self, name: str) -> pa.Array:
        """Returns each message's value of this property, or null."""
        if (found := self.values.get(name.encode())) is None:
            return pa.nulls(self.count, pa.string())
        return as_string(even_spans(self.octets, *found, self.size, self.count))

    def map(self) -> pa.Array:
        """Returns all properties of each message as a map."""
        widths = [width for _, width in self.values.values()]
        joined = np.empty(self.count * sum(widths), np.uint8)
        place = 0
        for start, width in self.values.values():
            behind = strided(joined, place, width, sum(widths), self.count)
            behind[:] = strided(self.octets, start, width, self.size, self.count)
            place += width
        names = b"".join(self.values) * self.count
        offsets = np.arange(self.count + 1, dtype=np.int32) * np.int32(len(widths))
        return pa.MapArray.from_arrays(
            pa.array(offsets),
            self._repeated(pa.py_buffer(names), [len(name) for name in self.values]),
            self._repeated(pa.py_buffer(joined), widths),
        )

    def _repeated(self, data: pa.Buffer, widths: list[int]) -> pa.Array:
        """Returns the texts in `data`, where each message has one of each width."""
        bounds = np.zeros(self.count * len(widths) + 1, np.int32)
        ends, first = np.cumsum(widths, dtype=np.int32), bounds[1:].reshape(self.count, -1)
        begins = np.arange(self.count, dtype=np.int32) * ends[-1]
        for number, end in enumerate(ends):  # long columns are added faster than many short rows
            np.add(begins, end, out=first[:, number])
        return as_string(slices_between(data, bounds))


def find_even_pairs(strings: pa.Array) -> EvenPairs | None:
    """Returns the pairs of the strings, or None if they have several sizes, several layouts, or no plain pairs.

    The pairs are then plain: every name and value has a byte or more, no name stands twice, and no string has other
    separators or a zero byte.
    """
    bounds, count = offsets_of(strings), len(strings)
    if count < FEWEST_STRINGS or not (size := int(bounds[1])) or (np.diff(bounds) != size).any():
        return None
    octets = byte_view(strings)[: bounds[-1]]
    pairs = split_pairs(octets[:size].tobytes())
    if pairs is None:
        return None
    values: dict[bytes, tuple[int, int]] = {}
    place, before = 0, b""
    for name, value in pairs:
        fixed = before + name + NAME_END
        if not _has_at(octets, place, fixed, size, count):
            return None
        place += len(fixed)
        values[name] = place, len(value)
        place += len(value)
        before = VALUE_END
    if not _has_at(octets, place, VALUE_END, size, count):
        return None
    if np.count_nonzero(octets <= LAST_SEPARATOR) != 2 * len(pairs) * count:
        return None
    return EvenPairs(octets, size, count, values)


def _has_at(octets: Octets, place: int, text: bytes, size: int, count: int) -> bool:
    """Returns whether each string has `text` at this place."""
    return strided(octets, place, len(text), size, count).tobytes() == text * count
