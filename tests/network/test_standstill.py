"""Work that drops silent peers waits once more after a standstill of its own process."""

from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pyrmq_core.network.standstill import LATE_SECONDS, sleep_and_hear


async def test_a_standstill_is_followed_by_a_second_sleep(mock_clock: MockClock) -> None:
    ended: list[float] = []

    async def sleeper() -> None:
        while True:
            await sleep_and_hear(10)
            ended.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleeper)
        began = trio.current_time()
        for seconds, expected in ((10, [10]), (12, [10, 22]), (200, [10, 22]), (9, [10, 22]), (1, [10, 22, 232])):
            await wait_all_tasks_blocked()
            mock_clock.jump(seconds)
            await wait_all_tasks_blocked()
            assert [moment - began for moment in ended] == expected
        nursery.cancel_scope.cancel()
    assert LATE_SECONDS > 2
