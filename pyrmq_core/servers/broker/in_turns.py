"""Long work on the event loop: `InTurns` lets other tasks run between steps, `BoundedWork` limits the tasks at work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")

# The steps that a task with long work does before other tasks run; a step takes some 10 us.
STEPS_AT_ONCE: Final = 64


class InTurns(Generic[T]):
    """The values of an iterator, for `async for`. After each `at_once` of them the loop's other tasks run."""

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
    """Runs an iterator of steps without values to its end. Other tasks run in between."""
    async for _ in InTurns(steps):
        pass


class BoundedWork:
    """A limit on long work: `at_once` tasks do it at a time, and with the waiting tasks they are at most `most`.

    A task waits `turn_seconds` at most.
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
        """Returns the result of the work, or None if `most` tasks are there already, or its turn does not come in time.

        Before its turn, and within the same time, the task awaits `ready`.
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
