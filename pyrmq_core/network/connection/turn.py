"""`Turn`: how much of one connection is handled before others have theirs."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, TypeAlias

# What lets one in at a time, such as a lock, and what lets all in.
OneByOne: TypeAlias = AbstractAsyncContextManager[object]
ALL_AT_ONCE: Final[OneByOne] = nullcontext()

COMMANDS_AT_ONCE: Final = 64
# Requests that make topics or files take milliseconds each.
SECONDS_AT_ONCE: Final = 0.01


class Turn:
    """So many commands, or so much time, whichever ends first."""

    __slots__ = ("_ends", "_left")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Starts the next one."""
        self._left = COMMANDS_AT_ONCE
        self._ends = time.monotonic() + SECONDS_AT_ONCE

    def is_over(self) -> bool:
        """Returns whether others have their turn now, after one more command."""
        self._left -= 1
        return self._left <= 0 or time.monotonic() >= self._ends
