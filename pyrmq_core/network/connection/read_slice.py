"""The limit on a slice: the commands that a connection handles before other tasks run."""

from __future__ import annotations

import time
from typing import Final

import trio

COMMANDS_AT_ONCE: Final = 64
# The fewest commands in a connection's first slice, however many are busy: enough to pull a few queues.
FIRST_COMMANDS: Final = 4
# The time after which a slice ends early: requests that create topics or files take milliseconds each.
SECONDS_AT_ONCE: Final = 0.01
# The least time of a slice while other connections are busy. A request on a quiet connection waits about this long.
SHARED_SECONDS: Final = 0.001


class ReadTurns:
    """The turns in which the connections of a server handle commands.

    `reading` is the number of connections that handle commands now. A slice is a bounded number of commands. A
    connection that has more commands waits for the `lock`, so that one of them at a time handles its next slices.
    """

    __slots__ = ("lock", "reading")

    def __init__(self) -> None:
        self.lock = trio.Lock()  # connections get it in the order in which they began to wait
        self.reading = 0


class ReadSlice:
    """A limit on the commands, and on the seconds, that a connection handles before it lets other tasks run.

    A connection handles its first slice of commands at once, but acquires the lock that all connections share before
    each further slice. Trio looks for received bytes only after all runnable tasks have run. If a hundred connections
    flood a server, only one of them then continues in each pass of the event loop. So a request on a quiet connection
    waits for one slice, not for a hundred.
    """

    __slots__ = ("_ends", "_has_turn", "_left", "is_over", "turns")

    def __init__(self, turns: ReadTurns) -> None:
        self.turns = turns
        self._has_turn = False
        self._left = 0
        self._ends = 0.0
        self.is_over = True

    def begin(self) -> None:
        """Starts the first slice, for commands that were just received.

        The more connections handle commands now, the fewer commands and the less time it has.
        """
        self.turns.reading = reading = self.turns.reading + 1
        self.is_over = False
        if reading == 1:
            self._left, self._ends = COMMANDS_AT_ONCE, time.monotonic() + SECONDS_AT_ONCE
        else:
            self._left = max(COMMANDS_AT_ONCE // reading, FIRST_COMMANDS)
            self._ends = time.monotonic() + max(SECONDS_AT_ONCE / reading, SHARED_SECONDS)

    def count(self) -> None:
        self._left -= 1
        self.is_over = self._left <= 0 or time.monotonic() >= self._ends

    async def wait_for_next(self) -> None:
        if self._has_turn:
            self._leave_turn()
        await self.turns.lock.acquire()
        self._has_turn = True
        self.is_over = False
        self._left = COMMANDS_AT_ONCE
        self._ends = time.monotonic() + (SECONDS_AT_ONCE if self.turns.reading == 1 else SHARED_SECONDS)

    def end(self) -> None:
        self.turns.reading -= 1
        if self._has_turn:
            self._leave_turn()

    def _leave_turn(self) -> None:
        self._has_turn = False
        self.turns.lock.release()
