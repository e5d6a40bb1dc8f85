"""The bodies of requests for settings of brokers (25, 26) and NameServers (318, 319): `name=value` lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.java.properties_text import format_java_properties, parse_java_properties


@dataclass(frozen=True, slots=True)
class SettingsUpdate:
    """A request to change some settings of a server. The answer has no fields."""

    CODE: ClassVar[RequestCode]
    settings: Mapping[str, str]

    def to_command(self) -> Command:
        return Command(self.CODE, body=format_java_properties(self.settings).encode())

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(_settings(command))


@dataclass(frozen=True, slots=True)
class SettingsAnswer:
    """The answer to a request for all settings of a server."""

    settings: Mapping[str, str]

    def to_command(self) -> Command:
        return success(body=format_java_properties(self.settings).encode())

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(_settings(command))


def _settings(command: Command) -> dict[str, str]:
    try:
        return parse_java_properties(bytes(command.body).decode())
    except ValueError as error:  # includes InvalidArgument and UnicodeDecodeError
        raise BodyError(f"settings: the body is no properties text: {error}") from error
