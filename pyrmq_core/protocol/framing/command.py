"""`Command`: one request or response of the remoting protocol, as a value (remoting/protocol/RemotingCommand.java)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.fast_dataclass import maker_of

RESPONSE_BIT: Final = 1
ONEWAY_BIT: Final = 2
NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})

# V5_3_3 of common/MQVersion.java. Brokers and NameServers accept any number and choose the form of answers by it.
VERSION: Final = 479
LANGUAGE: Final = "PYTHON"


class Serialization(enum.IntEnum):
    """The encoding of a header, which is the frame's fifth byte (remoting/protocol/SerializeType.java)."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(frozen=True, slots=True)
class Command:
    """The content of one frame.

    `code` is a request or a response code. `opaque` is a request's number, which its answer repeats. `ext` has the
    custom header fields (`extFields`, all text), and `remark` is a response's explanation.
    """

    code: int
    ext: Mapping[str, str] = field(default_factory=lambda: NO_FIELDS)
    body: bytes | memoryview = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: str = LANGUAGE
    version: int = VERSION
    serialization: Serialization = Serialization.JSON

    @property
    def is_response(self) -> bool:
        """True for an answer, False for a request."""
        return bool(self.flag & RESPONSE_BIT)

    @property
    def is_oneway(self) -> bool:
        """True for a request that expects no answer."""
        return bool(self.flag & ONEWAY_BIT)

    def oneway(self) -> Command:
        """Returns the same request as one-way: the peer sends no answer."""
        return replace(self, flag=self.flag | ONEWAY_BIT)

    def with_own_body(self) -> Command:
        """Returns the same command with a copy of its body, if the body is a view of the receive buffer."""
        return replace(self, body=bytes(self.body)) if isinstance(self.body, memoryview) else self

    def answered(self, answer: Command) -> Command:
        """Returns `answer` as the response to this request: it gets the request's opaque and header encoding."""
        return replace(answer, opaque=self.opaque, flag=RESPONSE_BIT, serialization=self.serialization)


# A fast constructor for decoders, which make a Command for every frame. It takes all fields in order.
make_command: Final = maker_of(Command)


def success(ext: Mapping[str, str] = NO_FIELDS, body: bytes | memoryview = b"") -> Command:
    """Returns a response with the code SUCCESS."""
    return Command(ResponseCode.SUCCESS, ext, body)


def refusal(code: int, remark: str, ext: Mapping[str, str] = NO_FIELDS) -> Command:
    """Returns a response with a code other than SUCCESS, and the reason as its remark."""
    return Command(code, ext, remark=remark)
