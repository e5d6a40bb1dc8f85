"""BROKER_HEARTBEAT (904), 5.x's short heartbeat, and NOTIFY_MIN_BROKER_ID_CHANGE (905), a notice to brokers.

The answer to request 904 is SUCCESS, even for an unknown broker. A NameServer of 4.9 does not answer it. The brokers of
one name have different ids. When another broker has the smallest one, the NameServer connects to the brokers of this
name and sends notice 905 one-way. Sources:
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
    """A notice of the smallest broker id with a broker name, sent when a broker with that name joined or left.

    `offline_broker_addr` is the address of a broker that left. `ha_broker_addr` is the address at which slaves fetch
    the log of a broker that joined.
    """

    CODE: ClassVar[RequestCode] = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    min_broker_id: int = wire("minBrokerId")
    min_broker_addr: str = wire("minBrokerAddr")
    offline_broker_addr: str | None = wire("offlineBrokerAddr", None)
    ha_broker_addr: str | None = wire("haBrokerAddr", None)
