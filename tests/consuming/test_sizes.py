"""A consumer of many topics: the work for one topic does not grow with the queues of the others."""

from __future__ import annotations

from typing import Any, cast

import trio

from pyrmq_core import MessageQueue
from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueues
from pyrmq_core.client.consumer.consume.process_queue import ProcessQueue
from pyrmq_core.client.consumer.group.membership import LEAST_SECONDS
from pyrmq_core.client.consumer.offsets.offsets_in_memory import OffsetsInMemory
from pyrmq_core.network.problems import Problems
from tests.consuming.test_parts import joined
from tests.support.jumping_clock import jumping_clock
from tests.support.worked_lines import counted_lines

__all__ = ["jumping_clock"]


class Offsets(OffsetsInMemory):
    """Keeps offsets nowhere: every queue begins at 0."""

    async def start_of(self, queue: MessageQueue) -> int:
        return 0

    async def persist(self, queues: object, *, confirmed: bool = False) -> None:
        return None


class IdleIntake:
    """Pulls nothing."""

    is_held_back = False

    def __init__(self, process_queue: ProcessQueue) -> None:
        self.pulled_at = trio.current_time()

    async def run(self) -> None:
        await trio.sleep_forever()


def queues_of(topic: str, number: int) -> list[MessageQueue]:
    return [MessageQueue(topic, "broker-a", queue_id) for queue_id in range(number)]


async def lines_for_one_topic(topics: int, queues: int) -> int:
    """Returns the lines of Python for one topic's look-up, update and drop beside `topics` others."""
    offsets = Offsets()
    async with trio.open_nursery() as nursery:
        table = AssignedQueues(
            nursery,
            cast(Any, offsets),
            offsets,
            cast(Any, IdleIntake),
            lambda assigned: None,
            lambda topic: None,
            Problems(cast(Any, None)),
        )
        for number in range(topics):
            assert await table.update(f"t{number}", queues_of(f"t{number}", queues))
        wanted = queues_of("t0", queues)
        assert await table.update("t0", wanted)  # all that is made at the first time is there

        with counted_lines() as lines:
            assert await table.update("t0", wanted)
            assert len(table.of_topic("t0")) == queues
        assert await table.drop_others([f"t{number}" for number in range(1, topics)])
        assert len(table.queues) == queues * (topics - 1)
        assert table.of_topic("t0") == []
        nursery.cancel_scope.cancel()
    return lines.count


async def test_the_queues_of_other_topics_cost_a_topic_nothing() -> None:
    assert await lines_for_one_topic(200, 4) < 1.5 * await lines_for_one_topic(2, 4)


async def test_a_topic_of_many_queues_costs_in_proportion_to_them() -> None:
    assert await lines_for_one_topic(1, 800) < 12 * await lines_for_one_topic(1, 80)


async def test_changes_one_after_the_other_share_rounds_of_heartbeats(jumping_clock: object) -> None:
    """A consumer that takes the queues of 1,000 topics has as many changes, and a round goes to all brokers."""
    rounds: list[float] = []
    member = await joined(rounds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.run)
        for _ in range(40):
            member.announce_soon()
            await trio.sleep(LEAST_SECONDS / 10)
        nursery.cancel_scope.cancel()
    assert 4 <= len(rounds) <= 6
