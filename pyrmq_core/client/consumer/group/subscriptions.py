"""`Subscription`: a topic that a group consumes, with the filter of its messages. Pure.

Source: remoting/protocol/filter/FilterAPI.java (buildSubscriptionData), 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.protocol.java.string_hash import string_hash_code
from pyrmq_core.protocol.messages.names import RETRY_PREFIX, check_topic, is_system_topic
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData

Filter = TagFilter | SqlFilter

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscribed topic, with its namespace, and the filter for it. `version_ms` is the time of the last change.

    Brokers use the subscription with the highest version for the complete group, so all members need equal ones.
    """

    topic: str
    filter: Filter
    version_ms: int

    def data(self) -> SubscriptionData:
        if isinstance(self.filter, SqlFilter):
            return SubscriptionData(
                self.topic, self.filter.expression, sub_version=self.version_ms, expression_type=SqlFilter.KIND
            )
        tags = tuple(sorted(self.filter.tags))
        return SubscriptionData(
            self.topic, self.filter.expression, tags, tuple(map(string_hash_code, tags)), self.version_ms
        )

    def is_like(self, other: SubscriptionData) -> bool:
        if isinstance(self.filter, SqlFilter):
            return other.expression_type == SqlFilter.KIND and other.sub_string == self.filter.expression
        return other.expression_type in ("", "TAG") and frozenset(other.tags_set) == self.filter.tags


def filter_of(tags: str, sql: str | None) -> Filter:
    tag_filter = TagFilter.parse(tags)
    if sql is None:
        return tag_filter
    if not tag_filter.passes_all:
        raise InvalidArgument(f"tags={tags!r} and sql={sql!r} exclude each other; SQL can say TAGS = '...' itself")
    return SqlFilter(sql)


def check_subscribed_topic(topic: str) -> None:
    """Raises `InvalidArgument` for an invalid topic name, a system topic (but the trace topic), and a retry topic."""
    check_topic(topic)
    if is_system_topic(topic) and topic != TRACE_TOPIC:
        raise InvalidArgument(f"topic {topic} is RocketMQ's own; consumers cannot subscribe to it")
    if topic.startswith(RETRY_PREFIX):
        raise InvalidArgument(
            f"topic {topic}: a group's own retry topic is subscribed by itself; other groups' may not be"
        )
