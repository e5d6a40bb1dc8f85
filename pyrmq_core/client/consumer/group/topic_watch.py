"""`TopicWatch`: calls a function when the queues of a topic change (TopicMessageQueueChangeListener.java)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.hook_calls import quietly
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network.problems import Problems

COMPARISON: Final = "looking for changed queues of the watched"
TopicListener = Callable[[str, Sequence[MessageQueue]], object]


class TopicWatch:
    """The listeners of topics, and the queues that each listener knows."""

    def __init__(self, lookups: QueueOffsets, interval: float, problems: Problems) -> None:
        self._lookups = lookups
        self._problems = problems
        self._interval = interval
        self._listeners: dict[str, TopicListener] = {}
        self._known: dict[str, frozenset[MessageQueue] | None] = {}

    async def add(self, topic: str, listener: TopicListener) -> None:
        """Calls the listener from now on when the queues are other ones than at this moment."""
        known = (await self._lookups.current_queues([topic]))[topic]
        self._known[topic] = None if known is None else frozenset(known)
        self._listeners[topic] = listener

    def remove(self, topic: str) -> None:
        """Calls the topic's listener no more."""
        self._listeners.pop(topic, None)

    async def run(self) -> None:
        """Compares the queues every `interval` seconds."""
        while True:
            await trio.sleep(self._interval)
            try:
                await self.compare()
            except RocketMQError as error:
                self._problems.failed(COMPARISON, "topics", error)
            else:
                self._problems.passed(COMPARISON, "topics")

    async def compare(self) -> None:
        """Compares the queues once. A topic that no NameServer knows is no change: its brokers may be away."""
        for topic, queues in (await self._lookups.current_queues(tuple(self._listeners))).items():
            if queues is None or topic not in self._listeners:
                continue
            known, self._known[topic] = self._known[topic], frozenset(queues)
            if known != self._known[topic]:
                quietly(self._listeners[topic], topic, queues)
