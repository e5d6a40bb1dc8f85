"""Names in a tenant's namespace: brokers know `NS%topic`, options and rows have `topic`. Pure.

A name that already has the namespace is left unchanged. Checkpoints and `lag` have the brokers' names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyrmq_core import MessageQueue, with_namespace
from pyrmq_spark.positions import PerQueue, Position


@dataclass(frozen=True, slots=True)
class Namespace:
    """A tenant's namespace, with methods that turn the topics in options into the names that brokers know.

    A method that gets None returns None.
    """

    name: str

    def topics(self, topics: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if topics is None else tuple(with_namespace(topic, self.name) for topic in topics)

    def queues(self, queues: tuple[MessageQueue, ...] | None) -> tuple[MessageQueue, ...] | None:
        return None if queues is None else tuple(self._queue(queue) for queue in queues)

    def position(self, position: Position | None) -> Position | None:
        if not isinstance(position, PerQueue):
            return position
        return PerQueue(
            {self._queue(queue): point for queue, point in position.queues.items()},
            {with_namespace(topic, self.name): point for topic, point in position.topics.items()},
        )

    def _queue(self, queue: MessageQueue) -> MessageQueue:
        return replace(queue, topic=with_namespace(queue.topic, self.name))


def name_of_tenant(topic: str, namespace: str | None) -> str | None:
    """Returns the topic's name without the namespace, or None for a topic outside it."""
    if namespace is None:
        return topic
    prefix = with_namespace("t", namespace).removesuffix("t")
    return topic.removeprefix(prefix) if topic.startswith(prefix) else None
