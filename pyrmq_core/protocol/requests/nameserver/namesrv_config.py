"""UPDATE_NAMESRV_CONFIG (318) and GET_NAMESRV_CONFIG (319): a NameServer's own settings as `name=value` lines.

A NameServer refuses UPDATE_NAMESRV_CONFIG with NO_PERMISSION if it contains a setting of `configBlackList`. mqadmin
reads the answer to request 319 as Java properties. Source: namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.requests.settings_text import SettingsAnswer, SettingsUpdate


@dataclass(frozen=True, slots=True)
class UpdateNamesrvConfig(SettingsUpdate):
    """A request to change some settings of a NameServer. The answer has no fields."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_NAMESRV_CONFIG


@dataclass(frozen=True, slots=True)
class GetNamesrvConfig(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_NAMESRV_CONFIG


@dataclass(frozen=True, slots=True)
class NamesrvConfigText(SettingsAnswer):
    """The settings of a NameServer, sorted by name."""
