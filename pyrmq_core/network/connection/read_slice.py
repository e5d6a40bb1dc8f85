"""The commands that a connection takes before other tasks run; of a server's connections with many, one at a time."""

from __future__ import annotations

import time
from typing import Final

import trio

COMMANDS_AT_ONCE: Final = 64
# So many of what has come are taken at once, whatever the others do: a client's pulls of a few queues wait for no turn.
FIRST_COMMANDS: Final = 4
# Requests that create topics or files take milliseconds each.
SECONDS_AT_ONCE: Final = 0.01
# The time where other connections have many commands, too: a question that comes meanwhile waits for about this.
SHARED_SECONDS: Final = 0.001


class ReadTurns:
    """The number of a server's connections that are amid commands that have come, and their turns."""

    __slots__ = ("lock", "reading")

    def __init__(self) -> None:
        self.lock = trio.Lock()  # a fair one: the connections come in the order in which they began to wait
        self.reading = 0


class ReadSlice:
    """The work of a connection before other tasks run: a number of commands or of seconds, whichever ends first.

    Trio looks for what has come only when all tasks that can run have run. So each connection begins what it received
    at once, and waits for its turn before the next slice: of a hundred that flood a server, one works in a round of the
    loop, and the question of a client that asks little waits for one slice, not for a hundred.
    """

    __slots__ = ("_ends", "_has_turn", "_left", "is_over", "turns")

    def __init__(self, turns: ReadTurns) -> None:
        self.turns = turns
        self._has_turn = False
        self._left = 0
        self._ends = 0.0
        self.is_over = True

    def begin(self) -> None:
        """Starts the first slice of what has come, a part of one where others have begun theirs."""
        self.turns.reading = reading = self.turns.reading + 1
        self.is_over = False
        if reading == 1:
            self._left, self._ends = COMMANDS_AT_ONCE, time.monotonic() + SECONDS_AT_ONCE
        else:
            self._left = max(COMMANDS_AT_ONCE // reading, FIRST_COMMANDS)
            self._ends = time.monotonic() + max(SECONDS_AT_ONCE / reading, SHARED_SECONDS)

    def count(self) -> None:
        """Counts a command that was taken; `is_over` is True if it was the last of this slice."""
        self._left -= 1
        self.is_over = self._left <= 0 or time.monotonic() >= self._ends

    async def wait_for_next(self) -> None:
        """Lets other tasks run, and waits for the connection's turn to start the next slice."""
        if self._has_turn:
            self._leave_turn()
        await self.turns.lock.acquire()
        self._has_turn = True
        self.is_over = False
        self._left = COMMANDS_AT_ONCE
        self._ends = time.monotonic() + (SECONDS_AT_ONCE if self.turns.reading == 1 else SHARED_SECONDS)

    def end(self) -> None:
        """Leaves the time to the others."""
        self.turns.reading -= 1
        if self._has_turn:
            self._leave_turn()

    def _leave_turn(self) -> None:
        self._has_turn = False
        self.turns.lock.release()
