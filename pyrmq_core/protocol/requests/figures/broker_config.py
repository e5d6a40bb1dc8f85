"""GET_BROKER_CONFIG (26) and UPDATE_BROKER_CONFIG (25): a broker's settings as `name=value` lines.

A broker refuses 25 with NO_PERMISSION if it names a setting of the black list. Source:
broker/processor/AdminBrokerProcessor.java, 5.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.properties_text import format_java_properties, parse_java_properties


@dataclass(frozen=True, slots=True)
class GetBrokerConfig(HeaderRequest):
    """A request for all settings."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_CONFIG


@dataclass(frozen=True, slots=True)
class BrokerConfigText:
    """The answer to 26."""

    settings: Mapping[str, str]

    def to_command(self) -> Command:
        return success(body=format_java_properties(self.settings).encode())

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(_settings(command))


@dataclass(frozen=True, slots=True)
class UpdateBrokerConfig:
    """A request to change these settings; answered without fields."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_BROKER_CONFIG
    settings: Mapping[str, str]

    def to_command(self) -> Command:
        return Command(self.CODE, body=format_java_properties(self.settings).encode())

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(_settings(command))


def _settings(command: Command) -> dict[str, str]:
    try:
        return parse_java_properties(bytes(command.body).decode())
    except ValueError as error:  # InvalidArgument and UnicodeDecodeError are ValueErrors
        raise BodyError(f"broker settings: the body is no properties text: {error}") from error
