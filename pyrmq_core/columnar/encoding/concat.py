"""Joins parts of many rows into one buffer, row after row: what stands in all rows, numbers, and columns of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.columnar.arrays import Bools, fixed_spans, offsets_of


class FixedWidth(NamedTuple):
    """A value of fixed width for each row, in the bytes of `kind` (such as `>i4`; `V32` for 32 opaque bytes)."""

    kind: str
    values: npt.NDArray[Any]


class OptionalConstant(NamedTuple):
    """The same bytes in those rows that have them."""

    raw: bytes
    there: Bools


# The same bytes in each row; numbers; bytes that not all rows have; an element of a binary array for each row, which
# adds nothing where it is null.
RowPart: TypeAlias = bytes | FixedWidth | OptionalConstant | pa.Array

NOTHING: Final = pa.scalar(b"", pa.binary())


def joined(parts: Sequence[RowPart], first: int, count: int) -> pa.Array:
    """The parts of `count` rows from `first` on, as one binary array; its bytes are the rows without a gap."""
    arguments: list[Any] = []
    fixed: list[bytes | FixedWidth] = []
    for part in parts:
        if isinstance(part, (bytes, FixedWidth)):
            fixed.append(part)
            continue
        if fixed:
            arguments.append(_together(fixed, first, count))
            fixed = []
        arguments.append(
            _sometimes(part, first, count) if isinstance(part, OptionalConstant) else part.slice(first, count)
        )
    if fixed:
        arguments.append(_together(fixed, first, count))
    if len(arguments) == 3 and not any(argument.null_count for argument in arguments):
        # Two joined by what stands between them take two thirds of the time of three joined by nothing.
        before, between, behind = arguments
        return pc.binary_join_element_wise(before, behind, between)
    return pc.binary_join_element_wise(*arguments, NOTHING, null_handling="skip")


def column_part(array: pa.Array) -> RowPart:
    """A column without nulls, of one element at least.

    Where all elements have one size, as ids and codes do, they are values of that width: joined with their neighbours
    they take a tenth of the time.
    """
    bounds = offsets_of(array)
    sizes = bounds[1:] - bounds[:-1]
    if (sizes != sizes[0]).any():
        return array
    kind = f"V{sizes[0]}"
    return FixedWidth(kind, np.frombuffer(array.buffers()[2], kind, len(sizes), int(bounds[0])))


def part_of(part: RowPart, start: int, end: int) -> RowPart:
    """What the part has for rows `start` to `end`, without it."""
    if isinstance(part, bytes):
        return part
    if isinstance(part, OptionalConstant):
        return OptionalConstant(part.raw, part.there[start:end])
    return (
        FixedWidth(part.kind, part.values[start:end])
        if isinstance(part, FixedWidth)
        else part.slice(start, end - start)
    )


def _sometimes(part: OptionalConstant, first: int, count: int) -> pa.Array:
    """The bytes again and again, null where they are not."""
    there = np.packbits(part.there[first : first + count], bitorder="little")
    bounds = np.arange(count + 1, dtype=np.int32) * len(part.raw)
    buffers = [pa.py_buffer(there), pa.py_buffer(bounds), pa.py_buffer(part.raw * count)]
    return pa.BinaryArray.from_buffers(pa.binary(), count, buffers)


def _together(fixed: Sequence[bytes | FixedWidth], first: int, count: int) -> pa.Array:
    """Neighbours of fixed width as one argument: each further one costs the join about 8 ns a row, here 1."""
    pattern = b"".join([part if isinstance(part, bytes) else bytes(np.dtype(part.kind).itemsize) for part in fixed])
    rows, width, start = bytearray(pattern) * count, len(pattern), 0
    for part in fixed:
        if isinstance(part, bytes):
            start += len(part)
        else:
            place: npt.NDArray[Any] = np.ndarray((count,), part.kind, rows, start, (width,))
            place[...] = part.values[first : first + count]
            start += place.itemsize
    return fixed_spans(np.frombuffer(rows, np.uint8).reshape(count, width))
