"""EXCHANGE_BROKER_HA_INFO (906): a master's address, and the address from which its slaves fetch the log.

A master sends both to its slaves before it registers. A slave requests both from its master by an empty request.
Sources: remoting/protocol/header/ExchangeHAInfoRequestHeader.java, ExchangeHAInfoResponseHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class MasterInfo(HeaderRequest):
    """A master's addresses, and the end of its log. The request and its answer have the same fields."""

    CODE: ClassVar[RequestCode] = RequestCode.EXCHANGE_BROKER_HA_INFO
    ha_address: str | None = wire("masterHaAddress", None)
    flush_offset: int | None = wire("masterFlushOffset", None)
    address: str | None = wire("masterAddress", None)
