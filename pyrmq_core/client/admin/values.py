"""The results of `Admin`'s methods: statuses of brokers, offsets of topics, and groups with members and lag.

A field `failures` has the error of each broker that did not answer, by its name. The data of these brokers are missing
in the other fields.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Final

from pyrmq_core.client.admin.html_tables import ShownAsTable
from pyrmq_core.errors import ResponseError, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.names import is_retry_topic
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumerRunningInfo, ConsumeStatus
from pyrmq_core.protocol.requests.figures.runtime_info import RuntimeInfo
from pyrmq_core.protocol.requests.groups.subscription_groups import SubscriptionGroupConfig
from pyrmq_core.protocol.routes.route import MASTER_ID

# A broker refuses messages while more than this fraction of its disk is used (diskSpaceWarningLevelRatio of
# store/DefaultMessageStore.java).
FULL_DISK_RATIO: Final = 0.9


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One registered address of a broker. `runtime_info` is the broker's report, or None with the `error` of the query.

    `put_tps` and `get_tps` are messages a second over the last 10 s. They are None in the broker's first seconds.
    """

    SHOWN: ClassVar = ("cluster", "broker_name", "broker_id", "address", "version", "put_tps", "get_tps", "error")

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    runtime_info: RuntimeInfo | None
    error: RocketMQError | None = None

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    @property
    def reachable(self) -> bool:
        """True if the broker answered, even if it refused to report its state."""
        return self.runtime_info is not None or isinstance(self.error, ResponseError)

    @property
    def version(self) -> str | None:
        """The broker's release, such as `5.4.0`, or None without a report."""
        return None if self.runtime_info is None else self.runtime_info.version

    @property
    def put_tps(self) -> float | None:
        return None if self.runtime_info is None else self.runtime_info.put_tps

    @property
    def get_tps(self) -> float | None:
        return None if self.runtime_info is None else self.runtime_info.get_tps

    @property
    def messages_put_today(self) -> int | None:
        return None if self.runtime_info is None else self.runtime_info.messages_put_today

    @property
    def messages_got_today(self) -> int | None:
        return None if self.runtime_info is None else self.runtime_info.messages_got_today

    @property
    def disk_ratio(self) -> float | None:
        """The used fraction of the commit log's disk, 0 to 1, or None if it was not reported."""
        return None if self.runtime_info is None else self.runtime_info.disk_ratio

    @property
    def disk_full(self) -> bool:
        """True if the disk is fuller than the default limit at which a broker refuses messages."""
        return self.disk_ratio is not None and self.disk_ratio > FULL_DISK_RATIO

    @property
    def booted(self) -> datetime | None:
        """The broker's start time, by its own clock, or None if it was not reported."""
        at_ms = None if self.runtime_info is None else self.runtime_info.boot_timestamp_ms
        return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The first offset of a queue, the offset after its last message, and that message's store time.

    The time is None for a queue without messages.
    """

    min_offset: int
    max_offset: int
    last_updated: datetime | None

    @property
    def messages(self) -> int:
        """The number of messages from the first to the last offset. Each message inside a batch record is counted."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class TopicStats(ShownAsTable):
    """A topic's queues. `failures` has the errors of brokers that did not answer, by name.

    `put_tps` is the rate of stored messages a second over the last minute. It is None before 5.0.
    """

    ROWS: ClassVar = "queues"
    COLUMNS: ClassVar = ("messages",)

    queues: Mapping[MessageQueue, QueueStats]
    put_tps: float | None
    failures: Mapping[str, RocketMQError]

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues.values())


@dataclass(frozen=True, slots=True)
class TopicRates(ShownAsTable):
    """The rates of one topic, in messages a second over the last minute, at all brokers except those in `failures`.

    `put_tps` is the rate of stored messages, and `get_tps` the rate of messages that each group received.
    """

    ROWS: ClassVar = "get_tps"

    put_tps: float
    get_tps: Mapping[str, float]
    failures: Mapping[str, RocketMQError]


@dataclass(frozen=True, slots=True)
class TopicGroupNames(ShownAsTable):
    """The groups of one topic. Groups that are known only to brokers in `failures` are missing."""

    ROWS: ClassVar = "groups"

    groups: tuple[str, ...]
    failures: Mapping[str, RocketMQError]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One consumer group in a list of all groups.

    `lag` is the sum over all topics, and `lags` has the lag of each topic. `consume_type` and `message_model` are None
    while no member is connected. `clients` are the members, without the queues that they read. `queues_beyond_end` is
    the number of queues with an offset beyond their end, which adds nothing to the lag. `consume_tps` is messages a
    second.
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
    lags: Mapping[str, int] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupList(ShownAsTable):
    """All groups by name. Groups that are known only to brokers in `failures` are missing."""

    ROWS: ClassVar = "groups"

    groups: tuple[GroupSummary, ...]
    failures: Mapping[str, RocketMQError]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group. `running_info` is the member's report, or None with the `error` of the query."""

    client_id: str
    address: str
    language: str
    version: str
    running_info: ConsumerRunningInfo | None = None
    error: RocketMQError | None = None

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that the member reads at this moment. There are none if it sent no report."""
        info = self.running_info
        return () if info is None else tuple(sorted({*info.queues, *info.pop_queues}))

    @property
    def reads(self) -> dict[str, str]:
        """The topics to which this member subscribes by its report, except retry topics, each with its filter.

        A filter is an expression, `*` for all messages. There are no topics if the member sent no report.
        """
        subscriptions = () if self.running_info is None else self.running_info.subscriptions
        return {data.topic: data.sub_string or "*" for data in subscriptions if not is_retry_topic(data.topic)}

    @property
    def read_texts(self) -> list[str]:
        """The topics of `reads`, sorted, each with its filter: `orders (TagA)`. The filter `*` is left out."""
        return [name if part == "*" else f"{name} ({part})" for name, part in sorted(self.reads.items())]

    @property
    def rates(self) -> ConsumeStatus | None:
        """The consumption rates that the member reports, summed over its topics, with the longest response time.

        None if the member sent no report.
        """
        if self.running_info is None:
            return None
        statuses = self.running_info.statuses.values()
        return ConsumeStatus(
            pull_rt=max((status.pull_rt for status in statuses), default=0.0),
            pull_tps=sum(status.pull_tps for status in statuses),
            consume_rt=max((status.consume_rt for status in statuses), default=0.0),
            consume_ok_tps=sum(status.consume_ok_tps for status in statuses),
            consume_failed_tps=sum(status.consume_failed_tps for status in statuses),
            consume_failed_msgs=sum(status.consume_failed_msgs for status in statuses),
        )


@dataclass(frozen=True, slots=True)
class GroupDescription(ShownAsTable):
    """One group: its settings by broker name, and its members.

    `consume_type`, `message_model` and `consume_from_where` are those of its members, and None without members.
    """

    ROWS: ClassVar = "members"
    COLUMNS: ClassVar = ("queues",)

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
    """A group's offset and lag in one queue. `broker_offset` is the queue's end, `client_id` the member that reads it.

    `last_consumed` is the store time of the last message before the committed offset. `waiting_since` is the store time
    of the oldest unconsumed message, by this host's clock. Each is None if there is no such message or the broker
    cannot find it. `pull_offset` is the offset up to which members have pulled. It is None before 5.0.
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
        """The number of unconsumed messages. It is negative for an offset beyond the end of the queue."""
        return self.broker_offset - self.consumer_offset

    @property
    def inflight(self) -> int | None:
        """The number of messages that members have pulled and not yet consumed. It is None before 5.0."""
        return None if self.pull_offset is None else self.pull_offset - self.consumer_offset


class WaitKind(enum.Enum):
    """The reason why messages of a queue are not consumed. If several apply, the first in this order is given."""

    NO_RIGHT = "no right to read"
    NO_MEMBER = "no member"
    NOT_SUBSCRIBED = "not subscribed"
    NO_REPORT = "no report"
    NOT_HELD = "not held"
    NOT_LOCKED = "not locked"
    IN_MEMORY = "in memory"
    ARRIVED_NOW = "arrived now"
    NOT_ASKED = "not asked for"
    NOT_DELIVERED = "not delivered"
    BEING_READ = "being read"


@dataclass(frozen=True, slots=True)
class WaitReason:
    """The reason why messages of `queues` are not consumed yet. `lag` is the number of these messages.

    `client_id` is the member that reads the queues, or None.
    """

    kind: WaitKind
    text: str
    lag: int
    queues: tuple[MessageQueue, ...]
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupProgress(ShownAsTable):
    """The progress of a group in each queue for which it has an offset, at a time by this host's clock.

    `consume_tps` is the rate of messages a second that brokers deliver. If the members were queried, `description` has
    them, and `reasons` says why messages wait, in the order of the number of messages. If that query failed,
    `members_error` is its error.
    """

    ROWS: ClassVar = "queues"
    COLUMNS: ClassVar = ("lag", "inflight")

    group: str
    queues: tuple[QueueProgress, ...]
    consume_tps: float
    failures: Mapping[str, RocketMQError]
    at: datetime
    description: GroupDescription | None = None
    members_error: RocketMQError | None = None
    reasons: tuple[WaitReason, ...] = ()

    @property
    def lag(self) -> int | None:
        """The number of unconsumed messages, or None without offsets. An offset beyond its queue's end adds nothing."""
        return sum(max(0, queue.lag) for queue in self.queues) if self.queues else None

    @property
    def waiting_since(self) -> datetime | None:
        """The store time of the oldest unconsumed message of all queues, or None if there is none."""
        return min((queue.waiting_since for queue in self.queues if queue.waiting_since is not None), default=None)

    def acknowledged_tps(self, before: GroupProgress) -> float | None:
        """Returns how many messages a second the group acknowledged between the progress `before` and this one.

        Only queues in both count, except those whose offset decreased. Returns None if there are none, or if no time
        has passed.
        """
        seconds = (self.at - before.at).total_seconds()
        offsets = {queue.queue: queue.consumer_offset for queue in before.queues}
        moves = [row.consumer_offset - offsets[row.queue] for row in self.queues if row.queue in offsets]
        forward = [move for move in moves if move >= 0]
        return sum(forward) / seconds if forward and seconds > 0 else None


@dataclass(frozen=True, slots=True)
class TopicConsumer:
    """One consumer group of a topic: the number of its members, and its progress in the topic.

    Messages in the group's retry topic are not counted.
    """

    SHOWN: ClassVar = ("group", "members", "lag", "consume_tps", "waiting_since")

    members: int
    progress: GroupProgress

    @property
    def group(self) -> str:
        return self.progress.group

    @property
    def lag(self) -> int | None:
        return self.progress.lag

    @property
    def consume_tps(self) -> float:
        return self.progress.consume_tps

    @property
    def waiting_since(self) -> datetime | None:
        return self.progress.waiting_since


@dataclass(frozen=True, slots=True)
class TopicConsumers(ShownAsTable):
    """The groups of one topic, greatest lag first. `left_out` is the number of groups that were not queried."""

    ROWS: ClassVar = "consumers"

    consumers: tuple[TopicConsumer, ...]
    left_out: int
    failures: Mapping[str, RocketMQError]


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The offset of a group in one queue, before and after a change. `before` is None if it had no offset.

    `repeated` is the number of offsets that will be consumed again, and `skipped` of those that never will be.
    """

    queue: MessageQueue
    before: int | None
    after: int

    @property
    def repeated(self) -> int:
        return 0 if self.before is None else max(0, self.before - self.after)

    @property
    def skipped(self) -> int:
        return 0 if self.before is None else max(0, self.after - self.before)
