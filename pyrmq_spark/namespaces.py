"""Reading in a tenant's namespace: brokers know `NS%topic`, options and rows say `topic`. Pure.

Whoever writes the namespace out is understood too. Checkpoints and `lag` carry the names that brokers know.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyrmq_core import MessageQueue, with_namespace
from pyrmq_spark.positions import PerQueue, Position

if TYPE_CHECKING:
    from pyrmq_spark.options import SourceOptions


def in_namespace(options: SourceOptions) -> SourceOptions:
    """The options with every topic as brokers know it."""
    namespace = options.namespace
    if namespace is None:
        return options
    return replace(
        options,
        topics=None if options.topics is None else tuple(with_namespace(topic, namespace) for topic in options.topics),
        assign=None if options.assign is None else tuple(_spaced(queue, namespace) for queue in options.assign),
        starting_offsets=_position(options.starting_offsets, namespace),
        starting_offsets_by_timestamp=_position(options.starting_offsets_by_timestamp, namespace),
        ending_offsets=_position(options.ending_offsets, namespace),
        ending_offsets_by_timestamp=_position(options.ending_offsets_by_timestamp, namespace),
    )


def name_of_tenant(topic: str, namespace: str | None) -> str | None:
    """The topic as its tenant knows it; None for one that is not in the namespace."""
    if namespace is None:
        return topic
    prefix = with_namespace("t", namespace).removesuffix("t")
    return topic.removeprefix(prefix) if topic.startswith(prefix) else None


def _position(position: Position | None, namespace: str) -> Position | None:
    if not isinstance(position, PerQueue):
        return position
    return PerQueue(
        {_spaced(queue, namespace): point for queue, point in position.queues.items()},
        {with_namespace(topic, namespace): point for topic, point in position.topics.items()},
    )


def _spaced(queue: MessageQueue, namespace: str) -> MessageQueue:
    return replace(queue, topic=with_namespace(queue.topic, namespace))
