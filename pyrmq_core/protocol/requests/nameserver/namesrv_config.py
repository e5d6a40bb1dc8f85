"""UPDATE_NAMESRV_CONFIG (318) and GET_NAMESRV_CONFIG (319): a NameServer's own settings as `name=value` lines.

A NameServer refuses 318 with NO_PERMISSION if it names a setting of the black list. mqadmin reads the answer to 319 as
Java properties. Source: namesrv/processor/DefaultRequestProcessor.java.
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
class UpdateNamesrvConfig:
    """A request to change these settings; answered without fields."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_NAMESRV_CONFIG
    settings: Mapping[str, str]

    def to_command(self) -> Command:
        return Command(self.CODE, body=format_java_properties(self.settings).encode())

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(_settings(command))


@dataclass(frozen=True, slots=True)
class GetNamesrvConfig(HeaderRequest):
    """A request for all settings."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_NAMESRV_CONFIG


@dataclass(frozen=True, slots=True)
class NamesrvConfigText:
    """The answer to 319, sorted by name."""

    settings: Mapping[str, str]

    def to_command(self) -> Command:
        return success(body=format_java_properties(self.settings).encode())

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(_settings(command))


def _settings(command: Command) -> dict[str, str]:
    try:
        return parse_java_properties(bytes(command.body).decode())
    except ValueError as error:  # InvalidArgument and UnicodeDecodeError are ValueErrors
        raise BodyError(f"NameServer settings: the body is no properties text: {error}") from error
