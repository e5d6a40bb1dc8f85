"""Joins parts of many rows into one buffer, row after row: what stands in all rows, in a matrix, or in a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.columnar.arrays import Octets, fixed_spans

# The same bytes in each row; a row of a matrix for each; an element of a binary array, without nulls, for each.
Part: TypeAlias = bytes | Octets | pa.Array

NOTHING: Final = pa.scalar(b"", pa.binary())


def joined(parts: Sequence[Part], first: int, count: int) -> pa.Array:
    """The parts of `count` rows from `first` on, as one binary array; its bytes are the rows without a gap."""
    arguments: list[object] = []
    fixed: list[bytes | Octets] = []
    for part in parts:
        if isinstance(part, bytes):
            fixed.append(part)
        elif isinstance(part, np.ndarray):
            fixed.append(part[first : first + count])
        else:
            arguments += _together(fixed, count)
            arguments.append(part.slice(first, count))
            fixed = []
    arguments += _together(fixed, count)
    if len(arguments) == 1 and isinstance(arguments[0], pa.Scalar):
        arguments.append(pa.nulls(count, pa.binary()).fill_null(b""))
    return pc.binary_join_element_wise(*arguments, NOTHING)


def _together(fixed: list[bytes | Octets], count: int) -> list[object]:
    """Neighbours of fixed width as one argument: each further one costs about 8 ns a row."""
    if not fixed:
        return []
    if all(isinstance(part, bytes) for part in fixed):
        return [pa.scalar(b"".join(part for part in fixed if isinstance(part, bytes)), pa.binary())]
    widths = [len(part) if isinstance(part, bytes) else part.shape[1] for part in fixed]
    matrix = np.empty((count, sum(widths)), np.uint8)
    start = 0
    for part, width in zip(fixed, widths, strict=True):
        matrix[:, start : start + width] = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
        start += width
    return [fixed_spans(matrix)]
