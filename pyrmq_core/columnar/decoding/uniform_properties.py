"""Finds the pairs of uniform properties strings, without a search for separators.

Most topics have such strings: the same names in the same order, and values of one size.

- `find_uniform_pairs`: all strings have one size. Each name and value then lies at one offset in every string, so
  columns are copied by strides, and no pair has bounds of its own. All columns and the map take a third to a half of
  the time by layout.
- `find_layout`: the value of one name may be of any size, as keys often are. What lies before it has its offset from
  the string's beginning, what lies behind it from the string's end. Two strings show the layout, and every other is
  compared with it. Nanoseconds for each of 10,000 strings of four pairs: 110 to 125 by search, 70 to 85 by layout; of
  nine pairs 230 and 120.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrmq_core.columnar.arrays import (
    Int32s,
    Octets,
    as_string,
    byte_view,
    offsets_of,
    slices_between,
    strided,
    uniform_spans,
)

# To look for a layout in vain takes 40 microseconds, which is little beside the search of so many strings.
FEWEST_OF_ONE_LAYOUT: Final = 2048
# Strings without one layout, such as those of two values of any size, mostly show it in so many of them.
PROBED_STRINGS: Final = 64
# More pairs than messages commonly have: the loop over them is one of Python.
MOST_PAIRS: Final = 24
NAME_END: Final = b"\x01"
VALUE_END: Final = b"\x02"
LAST_SEPARATOR: Final = 2

# To compare strings in vain takes some ten microseconds.
FEWEST_OF_ONE_SIZE: Final = 256


@dataclass(frozen=True, slots=True)
class UniformPairs:
    """The properties of `count` messages: `octets` is their values, one behind another, `size` bytes for each message.

    `values` has the names in their order, and for each the place of its value in those bytes and the value's size.
    """

    octets: Octets
    size: int
    count: int
    values: dict[bytes, tuple[int, int]]

    def column(self, name: str) -> pa.Array:
        """Returns each message's value of this property, or null."""
        if (span := self.values.get(name.encode())) is None:
            return pa.nulls(self.count, pa.string())
        return as_string(uniform_spans(self.octets, *span, self.size, self.count))

    def map(self, takes: Callable[[bytes], bool] = bool) -> pa.Array:
        """Returns the properties of each message whose names `takes` accepts, as a map; without it all."""
        if not all(map(takes, self.values)):
            return self._only([name for name in self.values if takes(name)]).map()
        names = pa.py_buffer(b"".join(self.values) * self.count)
        offsets = np.arange(self.count + 1, dtype=np.int32) * np.int32(len(self.values))
        return pa.MapArray.from_arrays(
            pa.array(offsets),
            self._texts(names, [len(name) for name in self.values]),
            self._texts(pa.py_buffer(self.octets), [width for _, width in self.values.values()]),
        )

    def _only(self, names: list[bytes]) -> UniformPairs:
        """Returns the pairs with these names, their values copied together."""
        places, widths = [[self.values[name][n] for name in names] for n in (0, 1)]
        *behind, total = accumulate(widths, initial=0)
        octets = np.empty(0, np.uint8)
        if names:
            octets = self.octets.view(_fields(places, widths, self.size)).astype(_fields(behind, widths, total))
        values = dict(zip(names, zip(behind, widths, strict=True), strict=True))
        return UniformPairs(octets.view(np.uint8), total, self.count, values)

    def _texts(self, data: pa.Buffer, widths: list[int]) -> pa.Array:
        """Returns the texts in `data`, where each message has one of each width."""
        return as_string(slices_between(data, _repeating_bounds(widths, self.count)))


def find_uniform_pairs(strings: pa.Array) -> UniformPairs | None:
    """Returns the pairs of the strings, or None if they have several sizes, several layouts, or no plain pairs.

    The pairs are then plain: every name and value has a byte or more, no name stands twice, and no string has other
    separators or a zero byte.
    """
    bounds, count = offsets_of(strings), len(strings)
    if count < FEWEST_OF_ONE_SIZE or not (size := int(bounds[1])) or (np.diff(bounds) != size).any():
        return None
    octets = byte_view(strings)[: bounds[-1]]
    pairs = split_pairs(octets[:size].tobytes())
    if pairs is None:
        return None
    places: list[int] = []
    place, before = 0, b""
    for name, value in pairs:
        fixed = before + name + NAME_END
        if not _has_at(octets, place, fixed, size, count):
            return None
        places.append(place := place + len(fixed))
        place += len(value)
        before = VALUE_END
    if not _has_at(octets, place, VALUE_END, size, count):
        return None
    widths = [len(value) for _, value in pairs]
    *behind, total = accumulate(widths, initial=0)
    # Copied field by field for some hundred strings at a time, which stay in the processor's cache.
    values = octets.view(_fields(places, widths, size)).astype(_fields(behind, widths, total)).view(np.uint8)
    # The smallest byte is found in a tenth of the time that it takes to count separators.
    if values.min() <= LAST_SEPARATOR:
        return None
    names = [name for name, _ in pairs]
    return UniformPairs(values, total, count, dict(zip(names, zip(behind, widths, strict=True), strict=True)))


def _fields(places: list[int], widths: list[int], size: int) -> np.dtype[np.void]:
    """Returns the type of `size` bytes that have a field of each width at its place."""
    names, formats = [str(number) for number in range(len(places))], [f"V{width}" for width in widths]
    return np.dtype({"names": names, "formats": formats, "offsets": places, "itemsize": size})


def _repeating_bounds(widths: list[int], count: int) -> Int32s:
    """Returns the bounds of `count` rows of texts with these widths, filled by doubling: few long vectors are added."""
    bounds = np.zeros(len(widths) * count + 1, np.int32)
    filled = len(widths)
    np.cumsum(widths, out=bounds[1 : filled + 1])
    while rest := len(bounds) - 1 - filled:
        more = min(filled, rest)
        np.add(bounds[1 : more + 1], bounds[filled], out=bounds[filled + 1 : filled + more + 1])
        filled += more
    return bounds


def _has_at(octets: Octets, place: int, text: bytes, size: int, count: int) -> bool:
    """Returns whether each string has `text` at this place."""
    return strided(octets, place, len(text), size, count).tobytes() == text * count


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of the pairs of every string, and the bounds of all pairs, as those of `Pairs`."""

    names: tuple[bytes, ...]
    bounds: Int32s


def find_layout(octets: Octets, bounds: Int32s) -> Layout | None:
    """Returns the layout of the strings `octets[bounds[i]:bounds[i + 1]]`, which fill `octets`; None if they have none.

    The pairs are then plain: every name and value has a byte or more, no name stands twice, and no string has other
    separators. A string with a zero byte has no layout here.
    """
    strings = len(bounds) - 1
    sizes = np.diff(bounds)
    if strings < FEWEST_OF_ONE_LAYOUT or not sizes.all():
        return None
    first = split_pairs(octets[bounds[0] : bounds[1]].tobytes())
    varying = None if first is None else _varying_pair(first, octets, bounds, sizes)
    if first is None or varying is None:
        return None
    names, starts, more = [name for name, _ in first], bounds[:-1], sizes - sizes[0]
    if len(first[varying][1]) + more.min() < 1:
        return None
    probed = slice(None, None, max(1, strings // PROBED_STRINGS))
    if not _has_names(octets, _places(first, varying, starts[probed], more[probed]), names):
        return None
    if np.count_nonzero(octets <= LAST_SEPARATOR) != 2 * len(first) * strings:
        return None
    places = _places(first, varying, starts, more)
    return Layout(tuple(names), places.reshape(-1, 4)) if _has_names(octets, places, names) else None


def split_pairs(text: bytes) -> list[tuple[bytes, bytes]] | None:
    """Returns the pairs of one string, or None if they are not plain or too many."""
    parts = [part.split(NAME_END) for part in text.split(VALUE_END)]
    if parts.pop() != [b""] or not 0 < len(parts) <= MOST_PAIRS:
        return None
    if any(len(part) != 2 or not all(part) for part in parts) or len({part[0] for part in parts}) < len(parts):
        return None
    return [(name, value) for name, value in parts]


def _varying_pair(first: list[tuple[bytes, bytes]], octets: Octets, bounds: Int32s, sizes: Int32s) -> int | None:
    """Returns the number of the pair whose value differs in size between the first string and one of another size.

    Returns None if several pairs do. If all strings have one size, no pair need do so: the last is as good as any.
    """
    other = int((sizes != sizes[0]).argmax())
    if not other:
        return len(first) - 1
    second = split_pairs(octets[bounds[other] : bounds[other + 1]].tobytes())
    if second is None or len(second) != len(first):
        return None
    differing = [
        number for number, (pair, other) in enumerate(zip(first, second, strict=True)) if len(pair[1]) != len(other[1])
    ]
    return differing[0] if len(differing) == 1 else None


def _places(first: list[tuple[bytes, bytes]], varying: int, starts: Int32s, more: Int32s) -> npt.NDArray[np.int32]:
    """Returns where each pair's name and value begin and end; `more` is how much longer each string is than the first.

    The result has a row for each string, and in it four places for each pair.
    """
    template, place = [], 0
    for name, value in first:
        middle = place + len(name)
        template.append((place, middle, middle + 1, place := middle + 1 + len(value)))
        place += 1
    flat = np.array(template, np.int32).ravel()
    # Long vectors are added faster than many short rows.
    places = np.repeat(starts, len(flat))
    places += np.tile(flat, len(starts))
    rows = places.reshape(len(starts), len(flat))
    if more.any():
        rows[:, 4 * varying + 3 :] += more[:, None]
    return rows


def _has_names(octets: Octets, places: npt.NDArray[np.int32], names: list[bytes]) -> bool:
    """Returns whether every string has these names and the separators at their places.

    Each name is compared with the separators around it; the first has none in front.
    """
    ends = [VALUE_END + name + NAME_END for name in names]
    starts = [places[:, 4 * number + 3] for number in range(len(names))]
    runs = [(places[:, 0], ends[0][1:]), *zip(starts, [*ends[1:], VALUE_END], strict=True)]
    for begins, text in runs:
        windows: npt.NDArray[np.void] = np.ndarray((len(octets) - len(text) + 1,), f"V{len(text)}", octets, 0, (1,))
        if windows[begins].tobytes() != text * len(places):
            return False
    return True
