"""Compares bodies with the CRC-32 that their records keep, which lacks its top bit: one by one, and many together.

One by one, slicing and calling take most of the time of a short body. Together, the top bit that each CRC would have is
computed first: it is the parity of those bits of the body that a mask selects. A CRC is linear, so bytes with their own
CRC behind them leave zero, and so do any number of such rows in a run:

    row       0 ... 0 | body | CRC | 0 0 0 0        a whole number of words; zeros in front change nothing
    block     row row row ...                       one CRC of all its bytes is zero

A single wrong body in a block never gives zero, since the CRC of its row is not zero and the bytes behind it can be
undone. Several wrong ones do so by a chance of 1 in 2**32; each alone has one of 1 in 2**31 to be overlooked.

Long rows are folded first: of 32 rows each is put one word further to the right than the one before, and all are
combined by exclusive or. This sums the rows as a run of them would, with other distances, and CRCs a 32nd of the bytes.
Nanoseconds for each of 1,000 bodies, one by one and together: 280 and 110 at 100 B, 370 and 180 at 400 B, 500 and 290
at 1 KiB. The library isal has a CRC-32 of 50 GB/s, 4 with zlib; where it is installed, only short bodies are compared
together.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyrmq_core.columnar.arrays import Ints, Octets
from pyrmq_core.protocol.messages.record import CRC_MASK

# With fewer bodies, or longer ones, the loop is as fast.
FEWEST_TOGETHER: Final = 512
LONGEST_TOGETHER: Final = 1536
# Bodies of several lengths are compared in classes of lengths, each up to a multiple of this. What each needs at its
# beginning is dear for long ones.
CLASS_BYTES: Final = 64
LONGEST_OF_SEVERAL: Final = 256
# The longest that are compared together: beside isal one by one is faster from here on.
LONGEST_BESIDE_ISAL: Final = 256
BLOCK_BYTES: Final = 256 * 1024
FOLDED_ROWS: Final = 32
# Shorter rows are not folded: the words between them would be more than is saved.
FOLDED_FROM_WORDS: Final = 17

# The words of many short rows are combined column by column: a sum of each row costs a row's own call.
LONGEST_BY_COLUMNS: Final = 24

WORD_BYTES: Final = 8
TOP_BIT: Final = 31
# CRC-32's polynomial, bits reversed as zlib has them.
POLYNOMIAL: Final = 0xEDB88320
# zlib begins with all bits set and inverts the result: so it begins with none, and this is zero.
NO_BITS: Final = 0xFFFFFFFF

Words = npt.NDArray[np.uint64]

# NumPy 2.0 or later counts bits by itself.
_count_bits: Final = getattr(np, "bitwise_count", None)

crc32: Callable[..., int]
longest_together: int
try:
    from isal.isal_zlib import crc32

    longest_together = LONGEST_BESIDE_ISAL
except ImportError:
    from zlib import crc32

    longest_together = LONGEST_TOGETHER


def all_match(octets: Octets, starts: Ints, ends: Ints, crcs: Ints) -> bool:
    """Returns whether each body `octets[start:end]` has its CRC.

    No body is empty, and each has `CLASS_BYTES` bytes before it, as the header of a record gives it.
    """
    lengths = ends - starts
    if len(lengths) < FEWEST_TOGETHER:
        return match_one_by_one(octets, starts, ends, crcs)
    if (crcs & ~CRC_MASK).any():
        return False
    words = -(-lengths // WORD_BYTES)
    if words.min() == words.max() and lengths.max() <= longest_together:
        return _match_together(octets, starts, ends, crcs, int(words[0]))
    classes = np.where(lengths <= LONGEST_OF_SEVERAL, -(-lengths // CLASS_BYTES), 0)
    counts = np.bincount(classes)
    classes[(counts < FEWEST_TOGETHER)[classes]] = 0
    if np.count_nonzero(classes) < len(classes) // 2:
        return match_one_by_one(octets, starts, ends, crcs)
    for number in np.unique(classes).tolist():
        rows = np.flatnonzero(classes == number)
        class_rows = starts[rows], ends[rows], crcs[rows]
        if number and not _match_together(octets, *class_rows, number * CLASS_BYTES // WORD_BYTES):
            return False
        if not number and not match_one_by_one(octets, *class_rows):
            return False
    return True


def match_one_by_one(octets: Octets, starts: Ints, ends: Ints, crcs: Ints) -> bool:
    """Returns what `all_match` does, by a loop."""
    view, crc = octets.data, crc32
    computed = [crc(view[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return bool((np.array(computed, np.int64) & CRC_MASK == crcs).all())


def gathered_match(bodies: Octets, crcs: Ints) -> bool:
    """Returns what `all_match` does for bodies of one length, the rows of a matrix: a row costs less than a slice."""
    computed = list(map(crc32, bodies))
    return bool((np.array(computed, np.int64) & CRC_MASK == crcs).all())


def _match_together(octets: Octets, starts: Ints, ends: Ints, crcs: Ints, width: int) -> bool:
    """Compares bodies of at most `width` words, block by block."""
    folded = FOLDED_ROWS if width >= FOLDED_FROM_WORDS else 1
    row_bytes = WORD_BYTES * width
    per_block = -(-min(BLOCK_BYTES // row_bytes, len(ends)) // folded) * folded
    windows: npt.NDArray[np.void] = np.ndarray((len(octets) - row_bytes + 1,), f"V{row_bytes}", octets, 0, (1,))
    places = ends - row_bytes
    leads = starts - places
    first_lead = int(leads[0])
    same_leads = bool((leads == first_lead).all())
    # A CRC that begins with no bits set does not depend on zeros in front.
    claimed = ((crcs ^ _crcs_of_zeros()[ends - starts]) & CRC_MASK).astype("<u8")
    mask, lead_words = _top_bit_mask(1 << (width - 1).bit_length())[-width:], -(-int(leads.max()) // WORD_BYTES)
    # Behind each row of a block lies its CRC, and room for the rows to be moved. Rows that the last block does not fill
    # keep those of the block before, which match.
    block = np.zeros((per_block, width + 1 + (folded if folded > 1 else 0)), "<u8")
    masked = np.empty((per_block, width), "<u8")
    for first in range(0, len(places), per_block):
        block_rows = slice(first, first + per_block)
        rows: Words = windows[places[block_rows]].view("<u8").reshape(-1, width)
        count = len(rows)
        if same_leads and lead_words:
            rows[:, : lead_words - 1] = 0
            rows[:, lead_words - 1] &= _KEPT[first_lead - WORD_BYTES * (lead_words - 1)]
        elif lead_words:
            _clear_leads(rows, leads[block_rows], lead_words)
        block[:count, :width] = rows
        block[:count, width] = claimed[block_rows] | _parity(_masked(rows, mask, masked[:count])) << np.uint64(TOP_BIT)
        if crc32(_folded(block, folded).data, NO_BITS) != NO_BITS:
            return False
    return True


def _masked(rows: Words, mask: Words, room: Words) -> Words:
    """Returns the words of each row combined by exclusive or, after the mask; `room` is for the masked words."""
    if len(mask) > LONGEST_BY_COLUMNS:
        combined: Words = np.bitwise_xor.reduce(np.bitwise_and(rows, mask, out=room), axis=1)
        return combined
    combined, room = rows[:, 0] & mask[0], room.ravel()[: len(rows)]
    for column in range(1, len(mask)):
        np.bitwise_and(rows[:, column], mask[column], out=room)
        combined ^= room
    return combined


def _clear_leads(rows: Words, leads: Ints, lead_words: int) -> None:
    """Sets the bytes before each body to zero; they lie in the row's first `lead_words` words."""
    inside = leads[:, None] - WORD_BYTES * np.arange(min(lead_words, rows.shape[1]))
    rows[:, : inside.shape[1]] &= _KEPT[np.clip(inside, 0, WORD_BYTES)]


# The word that keeps all of a word's bytes but the first 0, 1, ... 8.
_KEPT: Final = np.frombuffer(
    b"".join(b"\x00" * lead + b"\xff" * (WORD_BYTES - lead) for lead in range(WORD_BYTES + 1)), "<u8"
)


def _parity(words: Words) -> Words:
    """Returns 1 for each word with an odd number of bits."""
    if _count_bits is not None:
        counts: Words = _count_bits(words).astype(np.uint64)
        return counts & np.uint64(1)
    for bits in (32, 16, 8, 4, 2, 1):
        words = words ^ words >> np.uint64(bits)
    return words & np.uint64(1)


def _folded(block: Words, rows: int) -> Words:
    """Returns each group of so many rows combined: row i is moved i words to the right, into the room behind it."""
    if rows == 1:
        return block
    count, width = block.shape
    moved: npt.NDArray[Any] = np.ndarray(
        (count // rows, rows, width - 1),
        block.dtype,
        block,
        0,
        (WORD_BYTES * rows * width, WORD_BYTES * (width - 1), WORD_BYTES),
    )
    combined: Words = np.bitwise_xor.reduce(moved, axis=1)
    return combined


@cache
def _crcs_of_zeros() -> Ints:
    """Returns a table whose entry n is the CRC-32 of n zero bytes, for each length of `all_match`."""
    table = [0]
    for _ in range(LONGEST_TOGETHER):
        table.append(zlib.crc32(b"\x00", table[-1]))
    return np.array(table, np.int64)


@cache
def _top_bit_mask(words: int) -> Words:
    """Returns the mask of a row of 8-byte words under which its parity is the top bit of its CRC.

    A shorter row uses the mask's end.

    The last bit of the last byte turns the bits of the polynomial, and the bit before it those of its successor.
    """
    mask, turned = bytearray(words * WORD_BYTES), POLYNOMIAL
    for place in reversed(range(len(mask))):
        for bit in reversed(range(8)):
            mask[place] |= (turned >> TOP_BIT) << bit
            turned = turned >> 1 ^ (POLYNOMIAL if turned & 1 else 0)
    return np.frombuffer(bytes(mask), "<u8")
