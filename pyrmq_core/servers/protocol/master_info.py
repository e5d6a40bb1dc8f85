"""EXCHANGE_BROKER_HA_INFO (906): a master's address, and the address from which its slaves fetch the log.

A master sends both to a slave before the master registers. A slave sends an empty request to its master, whose answer
has both. Sources: remoting/protocol/header/ExchangeHAInfoRequestHeader.java, ExchangeHAInfoResponseHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class MasterInfo(HeaderRequest):
    """A master's addresses, and the end of its log, both as request and as answer."""

    CODE: ClassVar[RequestCode] = RequestCode.EXCHANGE_BROKER_HA_INFO
    ha_address: str | None = wire("masterHaAddress", None)
    flush_offset: int | None = wire("masterFlushOffset", None)
    address: str | None = wire("masterAddress", None)
