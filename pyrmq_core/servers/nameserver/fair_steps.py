"""`FairSteps`: runs long work in short steps on the event loop, and divides the steps fairly among connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TypeVar

import trio

T = TypeVar("T")


class _Work:
    """A piece of work that waits for its next step."""

    __slots__ = ("owner", "size", "turn")

    def __init__(self, owner: object, size: int) -> None:
        self.owner = owner
        self.size = size
        self.turn: trio.Event | None = None


class FairSteps:
    """The long work under way. Between two steps all other tasks on the loop can run, however much work waits.

    Every second step goes to the smallest piece of work, so that an ordinary broker is served even after huge ones. The
    other steps go to the owners (connections) in turn, the oldest work of each first, so that all work makes progress.
    """

    def __init__(self) -> None:
        self._works: dict[object, deque[_Work]] = {}  # by owner; the first owner is the next in turn
        self._current: _Work | None = None
        self._smallest_next = False

    async def run(self, steps: Generator[None, None, T], *, owner: object, size: int) -> T:
        """Runs all steps, each about a millisecond; returns and raises as the generator does."""
        work = _Work(owner, size)
        self._works.setdefault(owner, deque()).append(work)
        if self._current is None:
            self._current = work
        try:
            while True:
                await self._wait_step(work)
                try:
                    next(steps)
                except StopIteration as end:
                    value: T = end.value
                    return value
                self._pass_on()
        finally:
            self._leave(work)
            steps.close()

    async def _wait_step(self, work: _Work) -> None:
        if self._current is work:
            await trio.lowlevel.checkpoint()
        else:
            work.turn = trio.Event()
            await work.turn.wait()
            work.turn = None

    def _pass_on(self) -> None:
        self._current = following = self._next()
        if following.turn is not None:
            following.turn.set()

    def _next(self) -> _Work:
        self._smallest_next = not self._smallest_next
        if self._smallest_next:
            return min((work for works in self._works.values() for work in works), key=lambda work: work.size)
        owner, works = next(iter(self._works.items()))
        self._works[owner] = self._works.pop(owner)
        return works[0]

    def _leave(self, work: _Work) -> None:
        works = self._works[work.owner]
        works.remove(work)
        if not works:
            del self._works[work.owner]
        if self._current is work:
            self._current = None
            if self._works:
                self._pass_on()
