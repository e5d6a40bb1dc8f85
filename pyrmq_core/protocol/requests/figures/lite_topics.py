"""The six administrative requests about lite topics: GET_BROKER_LITE_INFO (200074) to TRIGGER_LITE_DISPATCH (200079).

Supported: every field of 5.5.0. Answers contain the names of lite topics, but `LiteClientInfo` contains the names of
their queues (`%LMQ%$parent$lite`).
Sources: remoting/protocol/body/GetBrokerLiteInfoResponseBody.java and its five neighbours,
broker/processor/LiteManagerProcessor.java, 5.5.0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Final, Self, TypeVar

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.java.members import flag_member, from_members, member, text_member, to_members
from pyrmq_core.protocol.requests.figures.topic_stats import TopicOffset
from pyrmq_core.protocol.requests.groups.consume_stats import OffsetWrapper

T = TypeVar("T")

MOST_CLIENT_TOPICS: Final = 1000
NO_OFFSETS: Final = TopicOffset(0, 0, 0)


@dataclass(frozen=True, slots=True)
class GetBrokerLiteInfo(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_LITE_INFO


@dataclass(frozen=True, slots=True)
class GetParentTopicInfo(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_PARENT_TOPIC_INFO
    topic: str = wire("topic")


@dataclass(frozen=True, slots=True)
class GetLiteTopicInfo(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_LITE_TOPIC_INFO
    parent_topic: str = wire("parentTopic")
    lite_topic: str = wire("liteTopic")


@dataclass(frozen=True, slots=True)
class GetLiteClientInfo(HeaderRequest):
    """A request for the lite topics of a group's client. The answer names at most `max_count` of them."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_LITE_CLIENT_INFO
    parent_topic: str = wire("parentTopic")
    group: str = wire("group")
    client_id: str = wire("clientId")
    max_count: int = wire_int("maxCount", MOST_CLIENT_TOPICS)


@dataclass(frozen=True, slots=True)
class GetLiteGroupInfo(HeaderRequest):
    """A request for a group's lag in one lite topic, or in all. The answer lists `top` lite topics with most lag."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_LITE_GROUP_INFO
    group: str = wire("group")
    lite_topic: str | None = wire("liteTopic", None)
    top: int = wire_int("topK", 0)


@dataclass(frozen=True, slots=True)
class TriggerLiteDispatch(HeaderRequest):
    """A request to look for messages that wait for one client of a group, or for all its clients."""

    CODE: ClassVar[RequestCode] = RequestCode.TRIGGER_LITE_DISPATCH
    group: str = wire("group")
    client_id: str | None = wire("clientId", None)


class LiteInfo:
    """The base class of the answers about lite topics. The body is a JSON object with the fields of the dataclass."""

    __slots__ = ()

    def to_command(self) -> Command:
        return success(body=dumps(_plain(self)))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        what = cls.__name__
        try:
            return from_members(cls, load_object(command.body, what))
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"{what}: a member is missing or of the wrong type: {error!r}") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {name: _plain(inner) for name, inner in to_members(value).items()}
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


def _rows(read: Callable[[Any], T]) -> Callable[[Iterable[object]], tuple[T, ...]]:
    return lambda rows: tuple(read(row) for row in rows)


def _table(read: Callable[[Any], T]) -> Callable[[Mapping[str, object]], dict[str, T]]:
    return lambda table: {name: read(value) for name, value in table.items()}


def _one(cls: type[T]) -> Callable[[Any], T]:
    return lambda members: from_members(cls, members)


_texts = _rows(text_member)


@dataclass(frozen=True, slots=True)
class BrokerLiteInfo(LiteInfo):
    """A broker's counts of lite topics and their subscriptions.

    `topics` maps each parent topic to the minutes after which its lite topics expire, `groups` maps it to its groups.
    """

    topics: Mapping[str, int] = member("topicMeta", MISSING, _table(int_member))
    groups: Mapping[str, tuple[str, ...]] = member("groupMeta", MISSING, _table(_texts))
    store_type: str = member("storeType", "", text_member)
    max_lite_topics: int = member("maxLmqNum", 0, int_member)
    lite_topics: int = member("currentLmqNum", 0, int_member)
    subscriptions: int = member("liteSubscriptionCount", 0, int_member)
    ordered: int = member("orderInfoCount", 0, int_member)
    queues: int = member("cqTableSize", 0, int_member)
    offsets: int = member("offsetTableSize", 0, int_member)
    clients_with_events: int = member("eventMapSize", 0, int_member)


@dataclass(frozen=True, slots=True)
class ParentTopicInfo(LiteInfo):
    """A parent topic: the minutes after which its lite topics expire, its groups, and the number of its lite topics.

    `all_lite_topics` is the number of lite topics of all parent topics of the broker.
    """

    topic: str = member("topic", "", text_member)
    expiration_minutes: int = member("ttl", 0, int_member)
    groups: tuple[str, ...] | None = member("groups", None, _texts)
    all_lite_topics: int = member("lmqNum", 0, int_member)
    lite_topics: int = member("liteTopicCount", 0, int_member)


@dataclass(frozen=True, slots=True)
class LiteSubscriber:
    client_id: str = member("clientId", "", text_member)
    group: str = member("group", "", text_member)


@dataclass(frozen=True, slots=True)
class LiteTopicInfo(LiteInfo):
    """A lite topic: its offsets and subscribers. `is_assigned` says whether its messages are sent to this broker."""

    parent_topic: str = member("parentTopic", "", text_member)
    lite_topic: str = member("liteTopic", "", text_member)
    subscribers: tuple[LiteSubscriber, ...] = member("subscriber", (), _rows(_one(LiteSubscriber)))
    offset: TopicOffset = member("topicOffset", NO_OFFSETS, _one(TopicOffset))  # noqa: RUF009 - a field
    is_assigned: bool = member("shardingToBroker", False, flag_member)


@dataclass(frozen=True, slots=True)
class LiteClientInfo(LiteInfo):
    """The lite topics of a group's client. For an unknown client, `count` and `last_access_ms` are -1."""

    parent_topic: str = member("parentTopic", "", text_member)
    group: str = member("group", "", text_member)
    client_id: str = member("clientId", "", text_member)
    last_access_ms: int = member("lastAccessTime", 0, long_member)
    last_consume_ms: int = member("lastConsumeTime", 0, long_member)
    count: int = member("liteTopicCount", 0, int_member)
    lite_topics: tuple[str, ...] | None = member("liteTopicSet", None, _texts)


@dataclass(frozen=True, slots=True)
class LiteLag:
    lite_topic: str = member("liteTopic", "", text_member)
    lag: int = member("lagCount", 0, long_member)
    earliest_ms: int = member("earliestUnconsumedTimestamp", -1, long_member)


@dataclass(frozen=True, slots=True)
class LiteGroupInfo(LiteInfo):
    """A group's lag in all its lite topics, or its lag and offset in one.

    `earliest_ms` is the store time of the oldest message that was not consumed, or -1. The lag in a lite topic without
    messages is -1. `by_age` is empty unless the broker is configured to collect the times of all lite topics.
    """

    group: str = member("group", "", text_member)
    parent_topic: str = member("parentTopic", "", text_member)
    lite_topic: str | None = member("liteTopic", None, text_member)
    lag: int = member("totalLagCount", 0, long_member)
    earliest_ms: int = member("earliestUnconsumedTimestamp", -1, long_member)
    offset: OffsetWrapper | None = member("liteTopicOffsetWrapper", None, _one(OffsetWrapper))  # noqa: RUF009 - a field
    by_lag: tuple[LiteLag, ...] | None = member("lagCountTopK", None, _rows(_one(LiteLag)))
    by_age: tuple[LiteLag, ...] | None = member("lagTimestampTopK", None, _rows(_one(LiteLag)))
