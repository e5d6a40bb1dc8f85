"""The one task that looks after many connections: when it wakes, and the connections it checks."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from pyrmq_core.network.connection.calls import CHECKED_AT_ONCE, DeadlineSweeper


class SweptConnection:
    """A connection that records its checks; calls end at the deadlines that the test sets."""

    def __init__(self, sweeper: DeadlineSweeper) -> None:
        self.sweeper = sweeper
        self.deadlines: list[float] = []
        self.ended: list[tuple[float, float]] = []
        self.checked: list[float] = []
        sweeper.add(self)

    def call(self, timeout: float) -> None:
        self.deadlines.append(trio.current_time() + timeout)
        self.sweeper.look_at(self.deadlines[-1])

    @property
    def calls_under_way(self) -> int:
        return len(self.deadlines)

    def expire_calls(self, now: float) -> float:
        self.ended += [(deadline, now) for deadline in self.deadlines if deadline <= now]
        self.deadlines = [deadline for deadline in self.deadlines if deadline > now]
        return min(self.deadlines, default=math.inf)

    def check_health(self, now: float) -> None:
        self.checked.append(now)


@asynccontextmanager
async def sweeping(health_seconds: float = 5.0) -> AsyncIterator[DeadlineSweeper]:
    sweeper = DeadlineSweeper(health_seconds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweeper.run)
        yield sweeper
        nursery.cancel_scope.cancel()


async def test_calls_end_at_their_deadlines(autojump_clock: MockClock) -> None:
    async with sweeping() as sweeper:
        first, other = SweptConnection(sweeper), SweptConnection(sweeper)
        for timeout in (30.0, 3.0, 100.0, 3.002, 0.25):
            first.call(timeout)
            await trio.sleep(0.1)
            other.call(timeout)
        await trio.sleep(200)
    for swept in (first, other):
        assert len(swept.ended) == 5
        assert all(deadline <= ended <= deadline + 0.02 for deadline, ended in swept.ended)


async def test_health_is_looked_at_regularly_while_there_is_anyone(autojump_clock: MockClock) -> None:
    async with sweeping(5.0) as sweeper:
        await trio.sleep(1000)
        swept = SweptConnection(sweeper)
        started = trio.current_time()
        await trio.sleep(31)
        sweeper.discard(swept)
        seen = len(swept.checked)
        await trio.sleep(1000)
        assert len(swept.checked) == seen
        between = [later - earlier for earlier, later in zip(swept.checked, swept.checked[1:], strict=False)]
        assert swept.checked[0] == started
        assert 6 <= seen <= 8
        assert max(between) < 6


async def test_others_run_between_many_checks() -> None:
    sweeper = DeadlineSweeper()
    many = [SweptConnection(sweeper) for _ in range(3 * CHECKED_AT_ONCE)]
    seen: list[int] = []

    async def look() -> None:
        while True:
            seen.append(sum(len(swept.checked) for swept in many) - len(many))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await sweeper._check_health(1.0)
        nursery.cancel_scope.cancel()
    assert {CHECKED_AT_ONCE, 2 * CHECKED_AT_ONCE} & set(seen)
    assert all(swept.checked[-1] == 1.0 for swept in many)


async def test_without_anyone_it_sleeps(autojump_clock: MockClock) -> None:
    async with sweeping(5.0):
        with trio.move_on_after(1e6):
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep_forever()
        assert trio.current_time() >= 1e6
