"""The work of a connection before other tasks run, shared by the connections of a server that have much of it."""

from __future__ import annotations

import time
from typing import Final

COMMANDS_AT_ONCE: Final = 64
# Requests that create topics or files take milliseconds each.
SECONDS_AT_ONCE: Final = 0.01


class ReadTurns:
    """The number of a server's connections that are amid commands that have come: these share one slice."""

    __slots__ = ("reading",)

    def __init__(self) -> None:
        self.reading = 0


class ReadSlice:
    """The work of a connection before other tasks run: a number of commands or of seconds, whichever ends first.

    Trio looks for what has come only when all tasks that can run have run, so that a question that comes meanwhile
    waits for the slices of all connections: a hundred that flood a server have one slice together.
    """

    __slots__ = ("_ends", "_left", "_turns")

    def __init__(self, turns: ReadTurns) -> None:
        self._turns = turns
        self.begin()

    def begin(self) -> None:
        """Starts the next slice."""
        self._turns.reading += 1
        self._left = COMMANDS_AT_ONCE // self._turns.reading
        self._ends = time.monotonic() + SECONDS_AT_ONCE / self._turns.reading

    def is_over(self) -> bool:
        """Counts one more command; returns True when it was the last of this slice."""
        self._left -= 1
        return self._left <= 0 or time.monotonic() >= self._ends

    def end(self) -> None:
        """Leaves the time to the others."""
        self._turns.reading -= 1
