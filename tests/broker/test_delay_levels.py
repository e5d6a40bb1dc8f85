"""Delivery of delayed messages beside the broker's other tasks."""

from dataclasses import replace
from itertools import pairwise

import trio
from trio.testing import wait_all_tasks_blocked

from pyrmq_core.broker.schedule.delay_levels import DELIVERIES_AT_ONCE, DelayLevels
from pyrmq_core.broker.store.appending import piece
from pyrmq_core.broker.store.layout import StoreSettings
from tests.broker.memory_files import MemoryFiles
from tests.broker.stores import Sent, opened

LARGE = StoreSettings(segment_bytes=1 << 20, queue_file_bytes=20_000)
PROPERTIES = b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"


async def test_other_tasks_have_a_turn_between_the_levels() -> None:
    levels = 5
    files = MemoryFiles()
    store = opened(files, LARGE)
    for level in range(levels):
        append = Sent("SCHEDULE_TOPIC_XXXX", level, ()).append()
        store.put(replace(append, pieces=[piece(0, b"x", PROPERTIES)] * DELIVERIES_AT_ONCE), 1)
    delays = DelayLevels(store, files, [1000] * levels)
    seen = [0]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delays.run)
        while seen[-1] < levels * DELIVERIES_AT_ONCE:
            await trio.lowlevel.checkpoint()
            seen.append(store.bounds(("T", 0))[1])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    # trio runs the tasks of one turn in any order: two levels may follow each other.
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 2 * DELIVERIES_AT_ONCE
