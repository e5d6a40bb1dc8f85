"""Murmur3, 128 bits for 64-bit machines, as Guava's `Hashing.murmur3_128().hashBytes(...).asLong()` returns it."""

from __future__ import annotations

from typing import Final

C1: Final = 0x87C37B91114253D5
C2: Final = 0x4CF5AD432745937F
MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


def murmur3_long(data: bytes) -> int:
    """Returns the first 64 bits of the hash, unsigned."""
    h1 = h2 = 0
    whole = len(data) & ~15
    for start in range(0, whole, 16):
        h1 ^= _mixed(int.from_bytes(data[start : start + 8], "little"), C1, 31, C2)
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & MASK
        h2 ^= _mixed(int.from_bytes(data[start + 8 : start + 16], "little"), C2, 33, C1)
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & MASK
    h2 ^= _mixed(int.from_bytes(data[whole + 8 :], "little"), C2, 33, C1)
    h1 ^= _mixed(int.from_bytes(data[whole : whole + 8], "little"), C1, 31, C2)
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & MASK
    h2 = h2 + h1 & MASK
    return _final(h1) + _final(h2) & MASK


def _mixed(block: int, first: int, bits: int, second: int) -> int:
    return _rotated(block * first & MASK, bits) * second & MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & MASK


def _final(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33
