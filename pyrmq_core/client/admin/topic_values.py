"""The values of `Admin.topics`: the figures of each queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue: the offsets of its first message and behind its last, and the last's store time, if any."""

    min_offset: int
    max_offset: int
    last_updated: datetime | None

    @property
    def messages(self) -> int:
        """The number of offsets between both; of a batch topic's records, each message."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic's queues; `failures` names the brokers that gave no answer, with their errors.

    `put_tps` is messages a second of the last minute at these brokers; None before 5.0.
    """

    queues: Mapping[MessageQueue, QueueStats]
    put_tps: float | None
    failures: Mapping[str, RocketMQError]

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues.values())


@dataclass(frozen=True, slots=True)
class TopicRates:
    """Messages a second of the last minute: those stored, and those that each group got, of all brokers that answer.

    `failures` names the brokers that gave no answer, with their errors.
    """

    put_tps: float
    get_tps: Mapping[str, float]
    failures: Mapping[str, RocketMQError]


@dataclass(frozen=True, slots=True)
class TopicGroupNames:
    """The groups of one topic, without those that only brokers in `failures` know."""

    groups: tuple[str, ...]
    failures: Mapping[str, RocketMQError]
