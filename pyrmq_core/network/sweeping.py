"""`Sweeper`: one task that looks after many connections, so that none needs timers of its own."""

from __future__ import annotations

import math
from typing import Final, Protocol

import trio

HEALTH_SECONDS: Final = 5.0
# Between two looks at the deadlines at least so long: a second for a million calls.
SWEEP_SECONDS: Final = 0.005
SWEEP_SECONDS_PER_CALL: Final = 1e-6


class Swept(Protocol):
    """What a sweeper looks after."""

    @property
    def calls_under_way(self) -> int: ...

    def expire_calls(self, now: float) -> float:
        """Ends calls whose time is up and tells the earliest deadline left."""
        ...

    def check_health(self, now: float) -> None:
        """Closes the connection if it is idle, stalled or in the middle of a frame for too long."""
        ...


class Sweeper:
    """Ends calls at their deadlines, and connections that idle, stall, or never complete a frame."""

    def __init__(self, health_seconds: float = HEALTH_SECONDS) -> None:
        self._health_seconds = health_seconds
        self._connections: dict[Swept, None] = {}
        self._wakes_at = math.inf
        self._woken = trio.Event()

    def add(self, connection: Swept) -> None:
        self._connections[connection] = None
        self.look_at(connection.expire_calls(trio.current_time()))
        if len(self._connections) == 1:
            self.look_at(trio.current_time() + self._health_seconds)

    def discard(self, connection: Swept) -> None:
        self._connections.pop(connection, None)

    def look_at(self, deadline: float) -> None:
        """Wakes the sweeper when it would sleep past this time."""
        if deadline < self._wakes_at:
            self._wakes_at = deadline
            self._woken.set()

    async def run(self) -> None:
        health_at = trio.current_time() + self._health_seconds
        while True:
            now = trio.current_time()
            connections = list(self._connections)
            self._woken = trio.Event()
            self._wakes_at = health_at if connections else math.inf
            for connection in connections:
                self._wakes_at = min(self._wakes_at, connection.expire_calls(now))
            if now >= health_at:
                for connection in connections:
                    connection.check_health(now)
                health_at = now + self._health_seconds
                continue
            with trio.move_on_at(self._wakes_at):
                await self._woken.wait()
            calls = sum(connection.calls_under_way for connection in self._connections)
            await trio.sleep_until(now + SWEEP_SECONDS + calls * SWEEP_SECONDS_PER_CALL)
