"""Finds where each item begins in stretches of bytes: each record of a pull, or each message of a batch record.

A stretch is a sequence of items without gaps. An item begins with its size, so the next item's position is known only
after reading it. If the first size divides the stretch, all its items are assumed to have that size, and checked. Other
stretches are read together, one item of each at a time, or in a loop if they are few. Nanoseconds for an item in 2 MiB
of records: 10 for equal sizes, 30 with 200 stretches, 100 with few.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from pyrmq_core.columnar.arrays import Ints, Octets

SIZE: Final = struct.Struct(">i")
# The fewest stretches that NumPy reads together: a step of NumPy costs as much as this many items in a loop.
STRETCHES_IN_STEP: Final = 64

Sizes = npt.NDArray[np.int32]


class Unreadable(Exception):
    """An error for records that cannot be decoded by columns. `decode_messages` reads them, or raises their fault."""


def items(octets: Octets, starts: Ints, ends: Ints, least: int) -> tuple[Ints, Ints]:
    """Returns the position at which each item begins, and the number of items in each stretch `octets[start:end]`.

    An item begins with its size as four bytes. Raises `Unreadable` for an item of fewer than `least` bytes, or beyond
    its stretch's end. Stretches are in order, and none is empty.
    """
    if not len(starts):
        return starts, starts
    if (ends - starts < least).any():
        raise Unreadable
    sizes: Sizes = np.ndarray((len(octets) - SIZE.size + 1,), ">i4", octets, 0, (1,))
    places, counts = _equal_sizes(sizes, starts, ends, least)
    rest = np.flatnonzero(counts == 0)
    if not len(rest):
        return places, counts
    more, counts[rest] = _one_by_one(octets, sizes, starts[rest], ends[rest], least)
    # Each part is sorted, and a stable sort merges sorted parts quickly.
    return np.sort(np.concatenate((places, *more)), kind="stable"), counts


def _equal_sizes(sizes: Sizes, starts: Ints, ends: Ints, least: int) -> tuple[Ints, Ints]:
    """Returns the positions of items, and each stretch's number of items, for stretches whose items all have one size.

    The number is 0 for every other stretch, whose items are left out.
    """
    first, lengths = sizes[starts].astype(np.int64), ends - starts
    likely = (first >= least) & (lengths % np.maximum(first, 1) == 0)
    counts = np.where(likely, lengths // np.maximum(first, 1), 0)
    if not likely.any():
        return starts[:0], counts
    stretch = np.repeat(np.arange(len(starts)), counts)
    before = np.cumsum(counts) - counts
    places = starts[stretch] + (np.arange(len(stretch)) - before[stretch]) * first[stretch]
    equal = sizes[places] == first[stretch]
    if equal.all():
        return places, counts
    counts[np.unique(stretch[~equal])] = 0
    return places[counts[stretch] > 0], counts


def _one_by_one(octets: Octets, sizes: Sizes, starts: Ints, ends: Ints, least: int) -> tuple[list[Ints], Ints]:
    counts = np.zeros(len(starts), np.int64)
    bounds: list[Ints] = []
    stretches, places, lasts = np.arange(len(starts)), starts, ends - least
    while len(places) >= STRETCHES_IN_STEP:
        step = sizes[places]
        if step.min() < least:
            raise Unreadable
        bounds.append(places)
        places = places + step
        room = lasts - places
        if room.min() < 0:  # some stretches have no further item
            over = room < 0
            if (room[over] != -least).any():
                raise Unreadable
            counts[stretches[over]] = len(bounds)
            stretches, places, lasts = stretches[~over], places[~over], lasts[~over]
    together = len(bounds)
    walked: list[int] = []
    data = octets.data
    for stretch, place, last in zip(stretches.tolist(), places.tolist(), lasts.tolist(), strict=True):
        before = len(walked)
        _walk(data, place, last, least, walked)
        counts[stretch] = together + len(walked) - before
    return [*bounds, np.array(walked, np.int64)], counts


def _walk(data: memoryview, place: int, last: int, least: int, walked: list[int]) -> None:
    unpack, append = SIZE.unpack_from, walked.append
    while place <= last:
        append(place)
        (size,) = unpack(data, place)
        if size < least:
            raise Unreadable
        place += size
    if place != last + least:
        raise Unreadable
