"""Long work on the event loop: `InTurns` lets other tasks run between its steps, `BoundedWork` limits its tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")

# How many steps of long work a task does before other tasks run. A step takes some 10 us.
STEPS_AT_ONCE: Final = 64


class InTurns(Generic[T]):
    """An async iterator over an iterator's values, which lets other tasks run after each `at_once` values."""

    def __init__(self, steps: Iterable[T], at_once: int = STEPS_AT_ONCE) -> None:
        self._steps = enumerate(steps, 1)
        self._at_once = at_once

    def __aiter__(self) -> InTurns[T]:
        return self

    async def __anext__(self) -> T:
        for number, value in self._steps:
            if number % self._at_once == 0:
                await trio.lowlevel.checkpoint()
            return value
        raise StopAsyncIteration


async def take_all(steps: Iterable[object]) -> None:
    """Runs an iterator to its end and drops its values. Other tasks run in between."""
    async for _ in InTurns(steps):
        pass


class BoundedWork:
    """A limit on long work: at most `at_once` tasks work at a time, and at most `most` tasks work or wait.

    A task waits at most `turn_seconds` seconds.
    """

    def __init__(self, at_once: int, most: int, turn_seconds: float) -> None:
        self.most = most
        self.turn_seconds = turn_seconds
        self.limiter = trio.CapacityLimiter(at_once)
        self.tasks = 0

    @property
    def waiting(self) -> int:
        return self.limiter.statistics().tasks_waiting

    async def run(
        self, work: Callable[[], Awaitable[T]], ready: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    ) -> T | None:
        """Runs `work` as soon as fewer than `at_once` tasks work, and returns its result.

        First awaits `ready`. Returns None, without running `work`, if too many tasks work or wait, or if both waits
        together take longer than `turn_seconds`.
        """
        if self.tasks >= self.most:
            return None
        self.tasks += 1
        try:
            with trio.move_on_after(self.turn_seconds) as limit:
                await ready()
                await self.limiter.acquire()
            if limit.cancelled_caught:
                return None
            try:
                return await work()
            finally:
                self.limiter.release()
        finally:
            self.tasks -= 1
