"""Java's String.hashCode: brokers compare tags and index keys by it, producers choose a sharding key's queue."""

from operator import mul
from typing import Final

MASK: Final = 0xFFFFFFFF
LONG: Final = 2**64 - 1
HALF: Final = 2**31
JUMP: Final = 2862933555777941757
# Powers of 31, the highest first. The sum of products for a part of a text is faster than a loop over its letters.
PART_BYTES: Final = 128
POWERS: Final = tuple(pow(31, exponent, MASK + 1) for exponent in reversed(range(PART_BYTES + 1)))


def string_hash_code(text: str, before: int = 0) -> int:
    """Returns Java's hashCode of a text: the signed 32-bit sum of s[i] * 31**(n-1-i) over its UTF-16 units.

    If `before` is the hash of another text, the result is the hash of that text followed by this one.
    """
    code = before
    if text.isascii():
        units = text.encode("ascii")
        for start in range(0, len(units), PART_BYTES):
            part = units[start : start + PART_BYTES]
            code = (sum(map(mul, part, POWERS[-len(part) :])) + code * POWERS[~len(part)]) & MASK
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(units), 2):
            code = (code * 31 + (units[index] << 8 | units[index + 1])) & MASK
    return code - 0x1_0000_0000 if code >= 0x8000_0000 else code


def consistent_bucket(code: int, buckets: int) -> int:
    """Returns the bucket of a number as Guava's `consistentHash` does (Lamping and Veach's jump consistent hash)."""
    bucket = following = 0
    while 0 <= following < buckets:
        bucket = following
        code = (code * JUMP + 1) & LONG
        step = (code >> 33) + 1  # at the highest value Guava's int overflows, which ends its loop
        following = int((bucket + 1) / (step / HALF)) if step < HALF else -1
    return bucket


def tags_code(tags: str | None) -> int:
    """Returns the hash of a message's tag in a consume queue (store/MessageExtBrokerInner.java), 0 for no tag."""
    return string_hash_code(tags) if tags else 0
