"""BROKER_HEARTBEAT (904), 5.x's short heartbeat, and NOTIFY_MIN_BROKER_ID_CHANGE (905), a notice to brokers.

The answer to 904 is SUCCESS for every broker, known or not. A NameServer of 4.9 does not answer it. Notice 905 is sent
when another broker of a name has the smallest id, one-way over a connection from the NameServer to the broker. Sources:
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
    """The notice of a broker name's new smallest id, after a broker left (`offline_broker_addr`) or joined.

    `ha_broker_addr` is the address at which slaves fetch the log of a broker that joined.
    """

    CODE: ClassVar[RequestCode] = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    min_broker_id: int = wire("minBrokerId")
    min_broker_addr: str = wire("minBrokerAddr")
    offline_broker_addr: str | None = wire("offlineBrokerAddr", None)
    ha_broker_addr: str | None = wire("haBrokerAddr", None)
