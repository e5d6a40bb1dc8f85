"""Offsets of a queue: GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), SEARCH_OFFSET_BY_TIMESTAMP (29),
GET_EARLIEST_MSG_STORETIME (32).

For an unknown topic or queue, a broker answers SUCCESS with the values of an empty queue. 4.9 ignores `boundaryType`.
Sources: remoting/protocol/header/GetMaxOffsetRequestHeader.java and its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse


@dataclass(frozen=True, slots=True)
class GetMaxOffset(HeaderRequest):
    """A request for the offset that the next readable message of the queue will have."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_MAX_OFFSET
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    committed: bool | None = wire("committed", True)
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class GetMinOffset(HeaderRequest):
    """A request for the offset of the oldest message that is still stored."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_MIN_OFFSET
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class SearchOffset(HeaderRequest):
    """A request for the offset of a message by its store time.

    `boundary_type` LOWER means the first message from that time on, UPPER the last message up to it.
    """

    CODE: ClassVar[RequestCode] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    timestamp_ms: int = wire("timestamp")
    boundary_type: str | None = wire("boundaryType", "LOWER")
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class GetEarliestStoreTime(HeaderRequest):
    """A request for the store time of the oldest stored message. The answer is -1 for an empty queue."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class OffsetFound(HeaderResponse):
    """An offset: the answer to QUERY_CONSUMER_OFFSET (14), and to the requests for a queue's offsets (29 to 31)."""

    offset: int = wire("offset")


@dataclass(frozen=True, slots=True)
class StoreTimeFound(HeaderResponse):
    timestamp_ms: int = wire("timestamp")
