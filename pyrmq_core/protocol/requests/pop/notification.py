"""NOTIFICATION (200054), whose answer says that a message can be popped, and POLLING_INFO (200055), which counts the
requests that wait at a broker for a message.

Not supported: the filter of a notification, which 5.5.0 adds (`expType`, `exp`).
Sources: remoting/protocol/header/NotificationRequestHeader.java, PollingInfoRequestHeader.java and their answers,
5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse


@dataclass(frozen=True, slots=True)
class AwaitMessage(HeaderRequest):
    """A request that a broker answers as soon as a message can be popped.

    If none can be popped until `poll_time_ms` after `born_time_ms`, the broker answers that there is none.
    """

    CODE: ClassVar[RequestCode] = RequestCode.NOTIFICATION
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    poll_time_ms: int = wire("pollTime")
    born_time_ms: int = wire("bornTime")
    order: bool | None = wire("order", False)
    attempt_id: str | None = wire("attemptId", None)
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class MessageAwaited(HeaderResponse):
    has_message: bool = wire("hasMsg")
    polling_full: bool | None = wire("pollingFull", False)


@dataclass(frozen=True, slots=True)
class GetPollingInfo(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.POLLING_INFO
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class PollingInfo(HeaderResponse):
    polling_num: int = wire_int("pollingNum")
