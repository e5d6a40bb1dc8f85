"""BROKER_HEARTBEAT (904) and NOTIFY_MIN_BROKER_ID_CHANGE (905): 5.x's light sign of life, and a NameServer's word to
brokers that another of them is now the one with the smallest id.

904 is answered SUCCESS for every broker, known or not; a NameServer of 4.9 does not answer it at all. 905 goes one-way
from the NameServer to the broker's address over a connection of its own.
Sources: remoting/protocol/header/namesrv/BrokerHeartbeatRequestHeader.java, NotifyMinBrokerIdChangeRequestHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(HeaderRequest):
    """This broker is alive."""

    CODE: ClassVar[RequestCode] = RequestCode.BROKER_HEARTBEAT
    cluster_name: str = wire("clusterName")
    broker_addr: str = wire("brokerAddr")
    broker_name: str | None = wire("brokerName", None)
    broker_id: int | None = wire("brokerId", None)


@dataclass(frozen=True, slots=True)
class NotifyMinBrokerIdChange(HeaderRequest):
    """This broker of your group has the smallest id now; one went (`offline_broker_addr`) or came."""

    CODE: ClassVar[RequestCode] = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    min_broker_id: int = wire("minBrokerId")
    min_broker_addr: str = wire("minBrokerAddr")
    offline_broker_addr: str | None = wire("offlineBrokerAddr", None)
    ha_broker_addr: str | None = wire("haBrokerAddr", None)
