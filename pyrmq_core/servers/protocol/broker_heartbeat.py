"""BROKER_HEARTBEAT (904) and NOTIFY_MIN_BROKER_ID_CHANGE (905): 5.x's short heartbeat, and a notice about it.

A NameServer sends the notice to brokers when another broker has the smallest id now. The answer to request 904 is
SUCCESS for every broker, known or not. A NameServer of 4.9 does not answer it at all. Notice 905 goes one-way from the
NameServer to the broker's address, over a separate connection. Sources:
remoting/protocol/header/namesrv/BrokerHeartbeatRequestHeader.java, NotifyMinBrokerIdChangeRequestHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.BROKER_HEARTBEAT
    cluster_name: str = wire("clusterName")
    broker_addr: str = wire("brokerAddr")
    broker_name: str | None = wire("brokerName", None)
    broker_id: int | None = wire("brokerId", None)


@dataclass(frozen=True, slots=True)
class NotifyMinBrokerIdChange(HeaderRequest):
    """A notice of the broker with the smallest id of its name, after one left (`offline_broker_addr`) or joined."""

    CODE: ClassVar[RequestCode] = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    min_broker_id: int = wire("minBrokerId")
    min_broker_addr: str = wire("minBrokerAddr")
    offline_broker_addr: str | None = wire("offlineBrokerAddr", None)
    ha_broker_addr: str | None = wire("haBrokerAddr", None)
