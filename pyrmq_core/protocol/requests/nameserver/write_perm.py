"""WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327): close a broker for writing, and open it again.

Request 205 clears the write bit of all the broker's topics, while request 327 makes them readable and writable, and
nothing else. Both last until the broker registers another version of its topics. The answer counts 0 topics for an
unknown broker. Sources: remoting/protocol/header/namesrv/WipeWritePermOfBrokerRequestHeader.java and its twin for
adding.
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
    """The answer to `WipeWritePerm`. `topics` is the number of the broker's topics, all closed for writing now."""

    topics: int = wire_int("wipeTopicCount", 0)


@dataclass(frozen=True, slots=True)
class AddWritePerm(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.ADD_WRITE_PERM_OF_BROKER
    broker_name: str = wire("brokerName")


@dataclass(frozen=True, slots=True)
class AddedWritePerm(HeaderResponse):
    """The answer to `AddWritePerm`. `topics` is the number of the broker's topics, all readable and writable now."""

    topics: int = wire_int("addTopicCount", 0)
