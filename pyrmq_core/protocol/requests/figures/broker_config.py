"""GET_BROKER_CONFIG (26) and UPDATE_BROKER_CONFIG (25): a broker's settings as `name=value` lines.

A broker refuses UPDATE_BROKER_CONFIG with NO_PERMISSION if it contains a setting of `configBlackList`. Source:
broker/processor/AdminBrokerProcessor.java, 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.requests.settings_text import SettingsAnswer, SettingsUpdate


@dataclass(frozen=True, slots=True)
class GetBrokerConfig(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_CONFIG


@dataclass(frozen=True, slots=True)
class BrokerConfigText(SettingsAnswer): ...


@dataclass(frozen=True, slots=True)
class UpdateBrokerConfig(SettingsUpdate):
    """A request to change some settings of a broker. The answer has no fields."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_BROKER_CONFIG
