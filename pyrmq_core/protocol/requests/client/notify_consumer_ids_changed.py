"""NOTIFY_CONSUMER_IDS_CHANGED (40): the members or subscriptions of a consumer group changed.

A broker sends it one-way, to every client that sent a heartbeat of the group. A client that does not receive it notices
the change at its next periodic rebalance. Sources:
remoting/protocol/header/NotifyConsumerIdsChangedRequestHeader.java, client/impl/ClientRemotingProcessor.java
(notifyConsumerIdsChanged), 5.4.0 and 4.9.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class NotifyConsumerIdsChanged(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    consumer_group: str = wire("consumerGroup")
