"""`Turn`: the share of work that one connection gets before other tasks run."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, TypeAlias

# A context that admits one task at a time, such as a lock; and one that admits all.
OneByOne: TypeAlias = AbstractAsyncContextManager[object]
ALL_AT_ONCE: Final[OneByOne] = nullcontext()

COMMANDS_AT_ONCE: Final = 64
# Requests that create topics or files take milliseconds each.
SECONDS_AT_ONCE: Final = 0.01


class Turn:
    """A number of commands or an amount of time, whichever ends first."""

    __slots__ = ("_ends", "_left")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Starts the next turn."""
        self._left = COMMANDS_AT_ONCE
        self._ends = time.monotonic() + SECONDS_AT_ONCE

    def is_over(self) -> bool:
        """Counts one more command; returns True when it was the last of this turn."""
        self._left -= 1
        return self._left <= 0 or time.monotonic() >= self._ends
