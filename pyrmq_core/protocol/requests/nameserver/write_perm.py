"""WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327): the write permission of a broker's topics.

In a NameServer's routes, request 205 clears the write bit of all the broker's topics. Request 327 sets their permission
to reading and writing, without other bits. Both last until the broker registers another version of its topics. For an
unknown broker the answer has 0 topics. Sources:
remoting/protocol/header/namesrv/WipeWritePermOfBrokerRequestHeader.java, AddWritePermOfBrokerRequestHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse


@dataclass(frozen=True, slots=True)
class WipeWritePerm(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    broker_name: str = wire("brokerName")


@dataclass(frozen=True, slots=True)
class WipedWritePerm(HeaderResponse):
    """The answer to `WipeWritePerm`. `topics` is the number of the broker's topics, none of them writable now."""

    topics: int = wire_int("wipeTopicCount", 0)


@dataclass(frozen=True, slots=True)
class AddWritePerm(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.ADD_WRITE_PERM_OF_BROKER
    broker_name: str = wire("brokerName")


@dataclass(frozen=True, slots=True)
class AddedWritePerm(HeaderResponse):
    """The answer to `AddWritePerm`. `topics` is the number of the broker's topics, all readable and writable now."""

    topics: int = wire_int("addTopicCount", 0)
