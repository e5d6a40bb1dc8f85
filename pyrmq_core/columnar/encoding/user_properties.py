"""The user properties of rows: a map column, which is encoded faster if all rows have the same names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.arrays import Int32s, Ints, byte_view, name_twice, offsets_of, strided_indices, take_unchecked

STRING_MAP: Final = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class UserProperties:
    """The user properties of many rows: a map column, and the property names if these are the same in all rows.

    `array` is a `STRING_MAP`. `names` is None if the rows' names or their order differ, or if a row is null. Rows with
    the same names are encoded twice as fast.
    """

    array: pa.Array
    names: tuple[str, ...] | None

    @classmethod
    def of(cls, array: pa.Array) -> Self:
        return cls(array, _names_of_all(array))

    def slice(self, start: int, count: int) -> Self:
        return type(self)(self.array.slice(start, count), self.names)

    def take(self, numbers: pa.Array) -> Self:
        array = self.array.take(numbers)
        return type(self)(array, _names_of_all(array) if self.names is None or not len(array) else self.names)

    def pairs(self) -> tuple[Ints, Ints]:
        """Returns, for each row, the number of its first name-value pair, and of the pair after its last one.

        Pairs are numbered through all rows. A null row has no pairs.
        """
        offsets = self.array.offsets.to_numpy().astype(np.int64)
        first, last = offsets[:-1], offsets[1:]
        if self.array.null_count:
            last = np.where(self.array.is_valid().to_numpy(zero_copy_only=False), last, first)
        return first, last

    def known_names(self) -> list[str]:
        if self.names is not None:
            return list(dict.fromkeys(self.names))
        names: list[str] = _flat_names(self.array).unique().to_pylist()
        return names

    def has_name_twice(self) -> bool:
        if self.names is not None:
            return len(set(self.names)) < len(self.names)
        coded = _flat_names(self.array).dictionary_encode()
        counts = np.diff(self.array.offsets.to_numpy()).astype(np.int64)
        return bool(name_twice(coded.indices.to_numpy(), counts, len(coded.dictionary)).any())

    def values_of(self, number: int) -> pa.Array:
        assert self.names is not None
        width, first = len(self.names), int(self.array.offsets[0].as_py())
        return take_unchecked(
            self.array.items.view(pa.binary()), strided_indices(width, first + number, len(self.array))
        )


def _flat_names(properties: pa.Array) -> pa.Array:
    first, last = properties.offsets[0].as_py(), properties.offsets[-1].as_py()
    return properties.keys.slice(first, last - first)


def _names_of_all(properties: pa.Array) -> tuple[str, ...] | None:
    """Returns the names of the first row, or None if another row has other names or another order."""
    rows = len(properties)
    if not rows or properties.null_count:
        return None
    counts = np.diff(properties.offsets.to_numpy())
    count = int(counts[0])
    if not count or (counts != count).any():
        return None
    names = _flat_names(properties)
    bounds: Int32s = offsets_of(names)
    sizes = np.diff(bounds).reshape(rows, count)
    if (sizes != sizes[0]).any():
        return None
    octets = byte_view(names)[bounds[0] : bounds[-1]].reshape(rows, -1)
    return None if (octets != octets[0]).any() else tuple(names[:count].to_pylist())
