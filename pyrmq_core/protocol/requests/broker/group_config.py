"""GET_SUBSCRIPTIONGROUP_CONFIG (352): a consumer group's settings. 5.x creates the group if it does not exist.

4.9 does not know this request (its answer has code 3), since it stores the offsets of any group.
Source: remoting/protocol/header/GetSubscriptionGroupConfigRequestHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class GetSubscriptionGroupConfig(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    group: str = wire("group")
