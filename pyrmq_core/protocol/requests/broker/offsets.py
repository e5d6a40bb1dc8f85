"""Offsets of a queue: GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), SEARCH_OFFSET_BY_TIMESTAMP (29),
GET_EARLIEST_MSG_STORETIME (32).

A broker answers SUCCESS with empty values for topics and queues it does not know. 4.9 ignores `boundaryType`.
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
    """The offset that the next readable message of the queue will have."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_MAX_OFFSET
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    committed: bool | None = wire("committed", True)
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class GetMinOffset(HeaderRequest):
    """The offset of the oldest message that is still kept."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_MIN_OFFSET
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class SearchOffset(HeaderRequest):
    """The offset of the first message stored at or after a time (LOWER), or of the last one at or before it (UPPER)."""

    CODE: ClassVar[RequestCode] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    timestamp_ms: int = wire("timestamp")
    boundary_type: str | None = wire("boundaryType", "LOWER")
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class GetEarliestStoreTime(HeaderRequest):
    """When the oldest message that is still kept was stored; -1 for an empty queue."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class OffsetFound(HeaderResponse):
    """The answer of 14, 29, 30 and 31."""

    offset: int = wire("offset")


@dataclass(frozen=True, slots=True)
class StoreTimeFound(HeaderResponse):
    """The answer of 32."""

    timestamp_ms: int = wire("timestamp")
