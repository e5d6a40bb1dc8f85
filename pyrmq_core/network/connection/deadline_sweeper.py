"""`DeadlineSweeper`: one task that checks many connections, so that none needs timers of its own."""

from __future__ import annotations

import math
from typing import Final, Protocol

import trio

HEALTH_SECONDS: Final = 5.0
# The least time between two checks of deadlines: a check costs some 0.05 us a call.
SWEEP_SECONDS: Final = 0.005
SWEEP_SECONDS_PER_CALL: Final = 1e-6
# The checks after which other tasks run: 10,000 in one go would delay them by a tenth of a second.
CHECKED_AT_ONCE: Final = 200


class SweptConnection(Protocol):
    """A connection as the sweeper uses it."""

    @property
    def calls_under_way(self) -> int: ...

    def expire_calls(self, now: float) -> float:
        """Ends calls whose time is up; returns the earliest deadline left."""
        ...

    def check_health(self, now: float) -> None:
        """Closes the connection if it idles, stalls or is in the middle of a frame for too long."""
        ...


class DeadlineSweeper:
    """Ends calls at their deadlines, and connections that idle, stall, or never complete a frame."""

    def __init__(self, health_seconds: float = HEALTH_SECONDS) -> None:
        self._health_seconds = health_seconds
        self._connections: dict[SweptConnection, None] = {}
        self._wakes_at = math.inf
        self._woken = trio.Event()

    def add(self, connection: SweptConnection) -> None:
        self._connections[connection] = None
        now = trio.current_time()
        connection.check_health(now)
        self.look_at(min(now + self._health_seconds, connection.expire_calls(now)))

    def discard(self, connection: SweptConnection) -> None:
        self._connections.pop(connection, None)

    def look_at(self, deadline: float) -> None:
        """Wakes the sweeper when it would sleep past this time."""
        if deadline < self._wakes_at:
            self._wakes_at = deadline
            self._woken.set()

    def looks_before(self, deadline: float) -> bool:
        """Returns True when the sweeper wakes by this time anyway, so that `look_at` has nothing to do."""
        return self._wakes_at <= deadline

    async def run(self) -> None:
        health_at = trio.current_time() + self._health_seconds
        while True:
            now = trio.current_time()
            self._woken = trio.Event()
            calls = self._expire_calls(now)
            if now >= health_at:
                await self._check_health(now)
                health_at = now + self._health_seconds
            if self._connections:
                self._wakes_at = min(self._wakes_at, health_at)
            with trio.move_on_at(self._wakes_at):
                await self._woken.wait()
            await trio.sleep_until(now + SWEEP_SECONDS + calls * SWEEP_SECONDS_PER_CALL)

    async def _check_health(self, now: float) -> None:
        for number, connection in enumerate(list(self._connections), 1):
            connection.check_health(now)
            if number % CHECKED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    def _expire_calls(self, now: float) -> int:
        """Ends overdue calls and sets the next time to wake; returns the number of calls checked."""
        calls = 0
        earliest = math.inf
        for connection in list(self._connections):
            if connection.calls_under_way:
                calls += connection.calls_under_way
                earliest = min(earliest, connection.expire_calls(now))
        self._wakes_at = earliest
        return calls
