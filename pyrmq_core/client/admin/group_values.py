"""The values of `Admin.groups`: groups with their lag, members with their clients, and the progress of each queue.

`failures` names the brokers that gave no answer while a table was built, with their errors; the rest is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumerRunningInfo
from pyrmq_core.protocol.requests.groups.subscription_groups import SubscriptionGroupConfig


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group of the list; `lag` is the sum over all topics, and a type is None while no member is connected.

    `clients` are the members, without the queues that they hold. An offset beyond the end of its queue is no lag:
    `queues_beyond_end` counts these.
    """

    group: str
    members: int
    consume_type: str | None
    message_model: str | None
    lag: int
    topics: tuple[str, ...]
    brokers: tuple[str, ...]
    clients: tuple[GroupMember, ...] = ()
    queues_beyond_end: int = 0


@dataclass(frozen=True, slots=True)
class GroupList:
    """All groups by name, without those that only brokers in `failures` have."""

    groups: tuple[GroupSummary, ...]
    failures: Mapping[str, RocketMQError]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One client of a group; `running_info` is its own report, or None with the `error` of the query for it."""

    client_id: str
    address: str
    language: str
    version: str
    running_info: ConsumerRunningInfo | None = None
    error: RocketMQError | None = None

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that the client holds at this moment."""
        info = self.running_info
        return () if info is None else tuple(sorted({*info.queues, *info.pop_queues}))


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group: its settings by broker name, its members, and what they said of the group in heartbeats."""

    group: str
    configs: Mapping[str, SubscriptionGroupConfig]
    members: tuple[GroupMember, ...]
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    subscriptions: tuple[SubscriptionData, ...]
    failures: Mapping[str, RocketMQError]


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """One queue of a group.

    `last_consumed` is the store time of the last message before the committed offset, `waiting_since` that of the
    oldest message that is not consumed, by this host's clock; None where there is none or the broker cannot tell.
    `pull_offset` is None before 5.0.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pull_offset: int | None
    last_consumed: datetime | None
    waiting_since: datetime | None
    client_id: str | None = None

    @property
    def lag(self) -> int:
        """The number of messages that are not consumed; negative for an offset beyond the end of the queue."""
        return self.broker_offset - self.consumer_offset

    @property
    def inflight(self) -> int | None:
        """The number of messages that are pulled and not consumed."""
        return None if self.pull_offset is None else self.pull_offset - self.consumer_offset


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The progress of a group in each queue that it has an offset of; `consume_tps` is messages a second."""

    group: str
    queues: tuple[QueueProgress, ...]
    consume_tps: float
    failures: Mapping[str, RocketMQError]

    @property
    def lag(self) -> int:
        """The number of messages that are not consumed; an offset beyond its queue's end hides no other lag."""
        return sum(max(0, queue.lag) for queue in self.queues)

    @property
    def waiting_since(self) -> datetime | None:
        """The store time of the oldest message that waits in any queue; None without one."""
        return min((queue.waiting_since for queue in self.queues if queue.waiting_since is not None), default=None)


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One queue's offset of a group, before and after a change."""

    queue: MessageQueue
    before: int | None
    after: int
