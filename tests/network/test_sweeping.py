"""The sweeper sleeps while there is nothing to look after."""

import trio
from trio.testing import MockClock

from pyrmq_core.network.sweeping import Sweeper


class Idle:
    """A connection without calls, that counts how often it is looked at."""

    calls_under_way = 0

    def __init__(self) -> None:
        self.looks = 0

    def expire_calls(self, now: float) -> float:
        return float("inf")

    def check_health(self, now: float) -> None:
        self.looks += 1


class CountSteps(trio.abc.Instrument):
    """Steps of all tasks."""

    def __init__(self) -> None:
        self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1


async def test_an_idle_connection_is_looked_at_every_few_seconds_and_no_more(autojump_clock: MockClock) -> None:
    sweeper, idle, count = Sweeper(5.0), Idle(), CountSteps()
    trio.lowlevel.add_instrument(count)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweeper.run)
        sweeper.add(idle)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(count)
    assert 19 <= idle.looks <= 22
    assert count.steps < 200
