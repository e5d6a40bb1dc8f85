"""`FixedQueues`: the queues that a user assigned to a consumer, in place of a rebalancer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import trio

from pyrmq_core.client.consumer.rebalance.rebalancer import ROUND_SECONDS, UNSETTLED_SECONDS, QueueTable
from pyrmq_core.model import MessageQueue


class FixedQueues:
    """Keeps a consumer's table at these queues: those that cannot be started, or have stalled, are tried again."""

    def __init__(self, table: QueueTable) -> None:
        self._table = table
        self._by_topic: dict[str, list[MessageQueue]] = {}
        self._woken = trio.Event()

    def set(self, queues: Collection[MessageQueue]) -> None:
        """Replaces the queues; `run_round` or the next round takes them."""
        by_topic: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in dict.fromkeys(queues):
            by_topic[queue.topic].append(queue)
        self._by_topic = dict(by_topic)

    def wake(self) -> None:
        """Begins the next round at once."""
        self._woken.set()

    async def run(self) -> None:
        """Keeps the table for the life of the consumer."""
        while True:
            self._woken = trio.Event()
            settled = await self.run_round()
            with trio.move_on_after(ROUND_SECONDS if settled else UNSETTLED_SECONDS):
                await self._woken.wait()

    async def run_round(self) -> bool:
        """Drops and adds queues once; returns whether all could be added."""
        by_topic = self._by_topic
        await self._table.drop_others(by_topic)
        settled = True
        for topic, queues in by_topic.items():
            settled = await self._table.update(topic, queues) and settled
        return settled
