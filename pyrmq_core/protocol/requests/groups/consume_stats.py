"""GET_CONSUME_STATS (208), QUERY_CONSUME_TIME_SPAN (303) and GET_BROKER_CONSUME_STATS (317): the progress of groups.

4.9 knows neither `topicList` nor `pullOffset`. The answers have tables by queue, whose JSON keys are objects.
Sources: remoting/protocol/header/GetConsumeStatsRequestHeader.java, remoting/protocol/admin/ConsumeStats.java,
OffsetWrapper.java, remoting/protocol/body/QueryConsumeTimeSpanBody.java, ConsumeStatsList.java, 5.4.0 and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.integers import long_member
from pyrmq_core.protocol.java.members import float_member, from_members, member
from pyrmq_core.protocol.java.object_keys import load_object_keys
from pyrmq_core.protocol.messages.queue_tables import queue_from, queue_table_from


@dataclass(frozen=True, slots=True)
class GetConsumeStats(HeaderRequest):
    """A request for the offsets of a group in all its topics, or in one."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUME_STATS
    consumer_group: str = wire("consumerGroup")
    topic: str | None = wire("topic", None)


@dataclass(frozen=True, slots=True)
class OffsetWrapper:
    """A group's progress in one queue. `last_timestamp_ms` is the store time of the last message that it consumed."""

    broker_offset: int = member("brokerOffset", 0, long_member)
    consumer_offset: int = member("consumerOffset", 0, long_member)
    pull_offset: int | None = member("pullOffset", None, long_member)
    last_timestamp_ms: int = member("lastTimestamp", 0, long_member)


@dataclass(frozen=True, slots=True)
class ConsumeStats:
    """The answer to `GetConsumeStats`: messages consumed per second, and the group's progress in each queue."""

    consume_tps: float = 0.0
    offsets: Mapping[MessageQueue, OffsetWrapper] = field(default_factory=dict)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object_keys(command.body, "offsets of a group")
        try:
            return cls.from_members(members)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"offsets of a group: a member is missing or of the wrong type: {error!r}") from error

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        table = queue_table_from(members.get("offsetTable"))
        offsets = {queue: from_members(OffsetWrapper, value) for queue, value in table.items()}
        return cls(float_member(members.get("consumeTps") or 0.0), offsets)


@dataclass(frozen=True, slots=True)
class QueueTimeSpan:
    """The store time of a queue's first message, and the age of the oldest message that the group has not consumed.

    The age (`delay_ms`) is 0 if the group has consumed all messages. It is the time since 1970 if the broker does not
    find the message's store time.
    """

    queue: MessageQueue
    min_timestamp_ms: int
    delay_ms: int


@dataclass(frozen=True, slots=True)
class ConsumeTimeSpans:
    queues: tuple[QueueTimeSpan, ...]

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object_keys(command.body, "times of a group")
        try:
            return cls(
                tuple(
                    QueueTimeSpan(
                        queue_from(span["messageQueue"]),
                        long_member(span.get("minTimeStamp", 0)),
                        long_member(span.get("delayTime", 0)),
                    )
                    for span in members.get("consumeTimeSpanSet") or ()
                )
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"times of a group: a member is missing or of the wrong type: {error!r}") from error


@dataclass(frozen=True, slots=True)
class ConsumeStatsOfGroups:
    """The answer to `GetBrokerConsumeStats`: for each group, one `ConsumeStats` for each topic."""

    groups: Mapping[str, tuple[ConsumeStats, ...]]

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object_keys(command.body, "offsets of all groups")
        try:
            return cls(
                {
                    group: tuple(ConsumeStats.from_members(part) for part in parts)
                    for row in members.get("consumeStatsList") or ()
                    for group, parts in row.items()
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"offsets of all groups: a member is missing or of the wrong type: {error!r}") from error
