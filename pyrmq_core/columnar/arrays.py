"""Functions over Arrow arrays and NumPy vectors that share memory: slices with and without a copy, and UTF-8 checks."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.protocol.messages.properties import decode_java_utf8

Ints: TypeAlias = npt.NDArray[np.int64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Bools: TypeAlias = npt.NDArray[np.bool_]
Octets: TypeAlias = npt.NDArray[np.uint8]

# Arrow's binary and string arrays count bytes in 32 bits.
MAX_ARRAY_BYTES: Final = 2**31 - 1
FIRST_BEYOND_ASCII: Final = 0x80
# The most property names for which `name_twice` makes each name one bit. With more, the sum of a message's bits could
# exceed 64 bits.
MAX_NAMES_IN_BITS: Final = 48

# Arrow's function without its check of the indices, which are always valid here. It is a tenth faster.
_TAKE: Final = pc.get_function("array_take")
_UNCHECKED: Final = pc.TakeOptions(boundscheck=False)

# Freed blocks up to this size are kept for reuse: it is the memory of the largest usual batch.
KEPT_BYTES: Final = 16 * 1024 * 1024


@cache
def keep_freed_memory() -> None:
    """Makes glibc keep freed blocks of up to 16 MiB for reuse. Call it before columns are encoded or decoded.

    Otherwise each batch's memory returns to the system, and allocating it again takes a third of a batch's time. glibc
    keeps blocks up to the size of the largest one that was ever freed, so this function allocates and frees 16 MiB.
    """
    np.empty(KEPT_BYTES, np.uint8)


def spans(data: pa.Buffer, starts: Ints | Int32s, ends: Ints | Int32s, missing: Bools | None = None) -> pa.Array:
    """Returns copies of `data[start:end]` for each start and end as one binary array, null where `missing`."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty((count, 2), np.int32)
    bounds[:, 0], bounds[:, 1] = starts, ends
    places = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=missing)
    return take_unchecked(slices_between(data, bounds.ravel()), places)


def windows(octets: Octets, width: int) -> npt.NDArray[np.void]:
    """Returns an array whose element i is the bytes `octets[i:i + width]`. Nothing is copied."""
    return np.ndarray((len(octets) - width + 1,), f"V{width}", octets, 0, (1,))


def take_unchecked(array: pa.Array, places: pa.Array) -> pa.Array:
    """Returns `array[index]` for each index in `places`, null for a null index. A wrong index is not noticed."""
    return _TAKE.call([array, places], _UNCHECKED)


def strided_indices(step: int, first: int, count: int) -> pa.Array:
    """Returns `count` indices for `take_unchecked`: `first`, `first + step`, `first + 2 * step` and so on."""
    return pa.array(np.arange(first, first + step * count, step, dtype=np.int32))


def slices_between(data: pa.Buffer, bounds: npt.NDArray[np.int32]) -> pa.Array:
    """Returns the binary array whose element i is `data[bounds[i]:bounds[i + 1]]`. Nothing is copied.

    Bounds may descend, so that an element has a negative length, as long as no caller reads that element.
    """
    if bounds[0] > bounds[-1]:  # Arrow refuses an array whose first bound is above its last
        bounds = np.append(bounds, np.int32(data.size))
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), data])


def fixed_spans(values: npt.NDArray[Any]) -> pa.Array:
    count, width = values.shape
    return slices_between(pa.py_buffer(np.ascontiguousarray(values)), np.arange(count + 1, dtype=np.int32) * width)


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Returns the bounds of a binary or string array's elements in its data.

    Element i is `byte_view(array)[bounds[i]:bounds[i + 1]]`.
    """
    offsets = array.buffers()[1]
    if offsets is None or not offsets.size:  # Arrow may leave the bounds out of an array without elements
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)


def byte_view(array: pa.Array) -> Octets:
    """Returns the entire data buffer of a binary or string array, including bytes before its first element."""
    data = array.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def encoded(texts: pa.Array) -> pa.DictionaryArray:
    """Returns the texts as an Arrow dictionary array, in which equal texts have the same index, and a null has none."""
    if not pa.types.is_dictionary(texts.type):
        return texts.dictionary_encode()
    # A caller's dictionary may contain a text twice, or a null.
    is_plain = not texts.dictionary.null_count and pc.count_distinct(texts.dictionary).as_py() == len(texts.dictionary)
    return texts if is_plain else texts.dictionary_decode().dictionary_encode()


def as_text(array: pa.Array) -> pa.Array:
    """Returns a binary array as strings. As in Java, bytes that are not UTF-8 become U+FFFD."""
    if is_utf8(array):
        return as_string(array)
    wrong = np.flatnonzero(not_utf8(array))
    texts = pa.array([decode_java_utf8(array[int(row)].as_py()) for row in wrong], pa.string())
    order = np.arange(len(array))
    order[wrong] = len(array) + np.arange(len(wrong))
    return pa.concat_arrays([as_string(array), texts]).take(pa.array(order))


def of_type(array: pa.Array, field: pa.Field) -> pa.Array:
    """Returns `array` converted to the type of `field`. A binary body becomes a string as in Java (see `as_text`)."""
    if array.type == field.type:
        return array
    return as_text(array) if field.name == "body" and field.type == pa.string() else array.cast(field.type)


def as_string(array: pa.Array) -> pa.Array:
    """Returns the binary array with the type string. The bytes are not checked to be UTF-8."""
    return array.view(pa.string())


def is_utf8(array: pa.Array) -> bool:
    """Returns whether all elements of a binary array without nulls are UTF-8. It is fastest if all are ASCII."""
    bounds = offsets_of(array)
    octets = byte_view(array)[bounds[0] : bounds[-1]]
    if not len(octets) or octets.max() < FIRST_BEYOND_ASCII:
        return True
    try:
        array.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def not_utf8(array: pa.Array) -> Bools:
    """Returns a mask of the elements that are not UTF-8. It decodes only elements that are not ASCII."""
    bounds, octets = offsets_of(array), byte_view(array)
    wrong = np.zeros(len(array), np.bool_)
    beyond = np.flatnonzero(octets[: bounds[-1]] >= FIRST_BEYOND_ASCII)
    rows = np.unique(np.searchsorted(bounds, beyond, side="right") - 1)
    for row in rows[rows >= 0].tolist():
        try:
            bytes(octets[bounds[row] : bounds[row + 1]]).decode()
        except UnicodeDecodeError:
            wrong[row] = True
    return wrong


def numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Returns a NumPy vector of numbers as an Arrow array of type `kind`. A contiguous vector is not copied."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def constant(text: str, count: int) -> pa.Array:
    letters = text.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(len(letters))
    return as_string(slices_between(pa.py_buffer(letters * count), bounds))


def name_twice(codes: Int32s, counts: Ints, name_count: int) -> Bools:
    """Returns a mask of the messages that have a property name more than once.

    `codes` has the number of each property's name, message after message. `counts` has each message's number of
    properties. `name_count` is the number of different names.
    """
    twice = np.zeros(len(counts), np.bool_)
    filled = np.flatnonzero(counts)
    firsts = (np.cumsum(counts) - counts)[filled]
    if not len(filled):
        return twice
    if name_count <= MAX_NAMES_IN_BITS:  # the sum and the union of bits differ if a bit occurs twice
        bits = np.left_shift(np.uint64(1), codes.astype(np.uint64))
        twice[filled] = np.add.reduceat(bits, firsts) != np.bitwise_or.reduceat(bits, firsts)
        return twice
    message = np.repeat(np.arange(len(counts)), counts)
    both = np.sort(message * name_count + codes)
    twice[both[1:][both[1:] == both[:-1]] // name_count] = True
    return twice
