"""`Turns`: long steps of many tasks, one in each pass of the event loop.

Trio runs every runnable task before it looks for received bytes. If all steps were made in one pass, every other
request would wait for all of them.
"""

from __future__ import annotations

import trio


class Turns:
    """The turns of one loop. One `is_free` if none was taken in this pass, and no task waits."""

    __slots__ = ("_waiting", "is_free")

    def __init__(self) -> None:
        self.is_free = True
        self._waiting = trio.lowlevel.ParkingLot()

    def take_nowait(self) -> bool:
        """Takes the turn of this pass of the event loop. Returns False if it was taken, or other tasks wait for it."""
        if not self.is_free:
            return False
        self.is_free = False
        trio.lowlevel.current_trio_token().run_sync_soon(self._pass_on)
        return True

    async def take(self) -> None:
        """Waits for a turn, behind all tasks that wait already. If one is free, returns without a checkpoint."""
        if not self.take_nowait():
            await self._waiting.park()

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.unpark()
            trio.lowlevel.current_trio_token().run_sync_soon(self._pass_on)
        else:
            self.is_free = True
