"""`Turns`: a limit for tasks that compute for long, so that only a few of them run in each pass of the event loop.

Trio runs every runnable task before it looks for received bytes. If all these tasks ran in one pass, every new request
would wait for all of them.
"""

from __future__ import annotations

from typing import Final

import trio

# The tasks in one pass of the loop. With more, other requests wait longer. With fewer, trio polls sockets more often.
AT_ONCE: Final = 16


class Turns:
    __slots__ = ("_left", "_waiting")

    def __init__(self) -> None:
        self._left = AT_ONCE
        self._waiting = trio.lowlevel.ParkingLot()

    def take_nowait(self) -> bool:
        """Takes a turn in this pass of the event loop. Returns False if none is left."""
        if not self._left:
            return False
        if self._left == AT_ONCE:
            trio.lowlevel.spawn_system_task(self._pass_on)
        self._left -= 1
        return True

    async def take(self) -> None:
        """Takes a turn, and if none is left waits for one, after the tasks that wait already."""
        if not self.take_nowait():
            await self._waiting.park()

    async def _pass_on(self) -> None:
        while self._waiting:
            self._waiting.unpark(count=AT_ONCE)
            await trio.lowlevel.checkpoint()
        self._left = AT_ONCE
