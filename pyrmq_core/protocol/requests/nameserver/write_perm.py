"""WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327): take a broker's topics out of writing, and back.

Wiping clears the write bit of all its topics; adding sets readable and writable exactly. Both last until the broker
registers another version of its topics. An unknown broker has 0 topics.
Sources: remoting/protocol/header/namesrv/WipeWritePermOfBrokerRequestHeader.java and its twin for adding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse


@dataclass(frozen=True, slots=True)
class WipeWritePerm(HeaderRequest):
    """Clients shall not write to this broker."""

    CODE: ClassVar[RequestCode] = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    broker_name: str = wire("brokerName")


@dataclass(frozen=True, slots=True)
class WipedWritePerm(HeaderResponse):
    """The answer of 205: how many topics the broker has."""

    topics: int = wire_int("wipeTopicCount", 0)


@dataclass(frozen=True, slots=True)
class AddWritePerm(HeaderRequest):
    """Clients may write to this broker again."""

    CODE: ClassVar[RequestCode] = RequestCode.ADD_WRITE_PERM_OF_BROKER
    broker_name: str = wire("brokerName")


@dataclass(frozen=True, slots=True)
class AddedWritePerm(HeaderResponse):
    """The answer of 327: how many topics the broker has."""

    topics: int = wire_int("addTopicCount", 0)
