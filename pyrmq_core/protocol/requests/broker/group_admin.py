"""An administrator's requests about consumer groups.

They return the topics and filters of groups (343, 345) and their progress (303, 308, 317), read entries of a consume
queue (321), copy offsets between groups (314), and forbid a group to read a topic (353). Answers are JSON.
Sources: remoting/protocol/header/QueryConsumeTimeSpanRequestHeader.java, CloneGroupOffsetRequestHeader.java,
UpdateGroupForbiddenRequestHeader.java and their neighbours (5.4.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class QueryConsumeTimeSpan(HeaderRequest):
    """A request for three store times in each queue of a topic: of the first message, of the last message, and of the
    last message that the group consumed.
    """

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_CONSUME_TIME_SPAN
    topic: str = wire("topic")
    group: str = wire("group")


@dataclass(frozen=True, slots=True)
class QueryCorrectionOffset(HeaderRequest):
    """A request for the lowest offset that any group has committed in each queue of a topic.

    The groups in `filter_groups` (`a,b`) are left out. If the offset of `compare_group` in a queue is lower still, the
    broker answers 2**63 - 1 for that queue.
    """

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_CORRECTION_OFFSET
    topic: str = wire("topic")
    compare_group: str = wire("compareGroup")
    filter_groups: str | None = wire("filterGroups", None)


@dataclass(frozen=True, slots=True)
class CloneGroupOffset(HeaderRequest):
    """A request to copy the committed offsets of `src_group` to `dest_group`, for one topic or for all.

    Without `offline`, only topics to which the connected members of `src_group` subscribe are copied. If no member is
    connected, all are copied.
    """

    CODE: ClassVar[RequestCode] = RequestCode.CLONE_GROUP_OFFSET
    src_group: str = wire("srcGroup")
    dest_group: str = wire("destGroup")
    topic: str | None = wire("topic", None)
    offline: bool = wire("offline", False)


@dataclass(frozen=True, slots=True)
class GetBrokerConsumeStats(HeaderRequest):
    """A request for the offsets of all groups. `is_order` restricts it to ordered topics."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_CONSUME_STATS
    is_order: bool = wire("isOrder", False)


@dataclass(frozen=True, slots=True)
class UpdateGroupForbidden(HeaderRequest):
    """A request for the permission of a group to read a topic. If `readable` is set, it first sets the permission."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    group: str = wire("group")
    topic: str = wire("topic")
    readable: bool | None = wire("readable", None)


@dataclass(frozen=True, slots=True)
class QueryConsumeQueue(HeaderRequest):
    """A request for `count` entries of a consume queue from `index` on, and for the group's filter."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_CONSUME_QUEUE
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    index: int = wire("index")
    count: int = wire_int("count")
    consumer_group: str | None = wire("consumerGroup", None)
