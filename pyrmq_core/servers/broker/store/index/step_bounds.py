"""The limits of one step of the key index: of the number of messages, and of the size and words of their properties.

With these limits a step takes some 10 ms. A word of KEYS takes about 4 us. A message whose properties exceed the limits
is indexed alone, in several steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

MESSAGES_AT_ONCE: Final = 1000
# The most weight of one step. The weight is the bytes of the properties plus `SPACE_WEIGHT` for each space, since a
# word of KEYS may follow it. One message may have 32 KiB of properties.
WEIGHT_AT_ONCE: Final = 32 << 10
SPACE_WEIGHT: Final = 16
KEYS_AT_ONCE: Final = 2048
SPACE: Final = b" "


def weight(properties: bytes) -> int:
    return len(properties) + SPACE_WEIGHT * properties.count(SPACE)


def count_like(properties: bytes) -> int:
    return min(MESSAGES_AT_ONCE, WEIGHT_AT_ONCE // max(1, len(properties)) + 1)


def count_of_step(properties: Sequence[bytes]) -> int:
    """Returns how many messages with these properties, from the first on, one step adds: at least one."""
    weigh = weight if SPACE in b"".join(properties) else len
    return max(1, bisect_right([*accumulate(map(weigh, properties))], WEIGHT_AT_ONCE))
