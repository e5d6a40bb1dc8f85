"""CONSUMER_SEND_MSG_BACK (36): a consumer could not handle a message, and the broker delivers it to the group again.

The request names the message by its commit-log offset.
Source: remoting/protocol/header/ConsumerSendMsgBackRequestHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class ConsumerSendMsgBack(HeaderRequest):
    """A request to deliver a message to the group again.

    A negative delay level moves it to the group's dead-letter topic. With level 0 the broker chooses the delay by the
    number of tries.
    """

    CODE: ClassVar[RequestCode] = RequestCode.CONSUMER_SEND_MSG_BACK
    offset: int = wire("offset")
    group: str = wire("group")
    delay_level: int = wire_int("delayLevel")
    origin_msg_id: str | None = wire("originMsgId", None)
    origin_topic: str | None = wire("originTopic", None)
    unit_mode: bool | None = wire("unitMode", False)
    max_reconsume_times: int | None = wire_int("maxReconsumeTimes", None)
    broker_name: str | None = wire("bname", None)
