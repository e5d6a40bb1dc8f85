"""The conditions of a search: a text in the body, a regular expression, or an expression over fields (`Where`).

Each is tested on one message. `TextIn` and `Pattern` can also be tested on a whole Arrow column of bodies. Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Protocol

from pyrmq_core.client.arrow_library import columnar
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import MessageExt
from pyrmq_core.tools.search.where import Row, Where

# The longest body that is parsed: a broker's default limit for messages. Parsing it takes a second, and 40 times its
# size in memory.
MAX_JSON_BYTES: Final = 4 << 20
QUICK_BYTES: Final = 64 * 1024
# The most digits of a number that is parsed as an int. Python's own limit is a little higher.
INT_DIGITS: Final = 4000


class NoJson(ValueError):
    """Raised if a condition needs members of a body that is not JSON."""


class LongJson(Exception):
    """Raised if a condition needs members of a body that is too long to be parsed."""


@dataclass(frozen=True, slots=True)
class TextIn:
    """The condition that the body contains a text, as UTF-8."""

    text: str
    needle: bytes = field(init=False)

    def __post_init__(self) -> None:
        if not self.text:
            raise InvalidArgument("the text to search for is empty; every body contains it")
        try:
            object.__setattr__(self, "needle", self.text.encode())
        except UnicodeEncodeError:
            raise InvalidArgument("the text to search for holds half of a surrogate pair") from None

    def holds(self, message: MessageExt) -> bool:
        return self.needle in message.body


@dataclass(frozen=True, slots=True)
class Pattern:
    """The condition that a regular expression of RE2 matches in the body's first 64 KiB. It needs Arrow."""

    text: str

    def __post_init__(self) -> None:
        columnar("regular expressions").check_pattern(self.text)

    def holds(self, message: MessageExt) -> bool:
        # The slow way, for a message that is not decoded into Arrow columns.
        from pyrmq_core.columnar.decoding.body_matches import matches_pattern  # imports Arrow, which is installed

        return matches_pattern(message.body, self.text)


@dataclass(frozen=True, slots=True)
class Members:
    """The condition that an expression over the message's fields (`Where`) is true."""

    where: Where

    def holds(self, message: MessageExt) -> bool:
        """Returns whether the expression is true.

        If the expression reads the body, raises `NoJson` for a body that is not JSON, and `LongJson` for one that is
        longer than `MAX_JSON_BYTES`.
        """
        return self.where.holds(Row(message, json_of(message.body) if self.where.reads_json else None))


class Condition(Protocol):
    def holds(self, message: MessageExt) -> bool: ...


def condition_of(contains: str | None, where: str | None, regex: str | None) -> Condition:
    """Returns the condition for the one argument that is not None.

    Raises `InvalidArgument` if there is none, if there are several, or if it is invalid.
    """
    match (contains, where, regex):
        case (str(), None, None):
            return TextIn(contains)
        case (None, str(), None):
            return Members(Where.parse(where))
        case (None, None, str()):
            return Pattern(regex)
    raise InvalidArgument("a search has one condition: a text that bodies contain, a where, or a regular expression")


def json_of(body: bytes) -> Any:
    """Returns the value of a JSON body, with exact numbers.

    Raises `LongJson` for a body that is longer than `MAX_JSON_BYTES`, and `NoJson` for one that is not JSON.
    """
    if len(body) > MAX_JSON_BYTES:
        raise LongJson
    decoder = DECODER if len(body) <= QUICK_BYTES else INTERRUPTIBLE
    try:
        text = body.decode("utf-8-sig")
        try:
            return decoder.decode(text)
        except json.JSONDecodeError:
            raise
        except ValueError:  # a whole number of more digits than Python's int takes
            return INTERRUPTIBLE.decode(text)
    except (ValueError, RecursionError, ArithmeticError):
        raise NoJson from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _whole(text: str) -> int | Decimal:
    return int(text) if len(text) <= INT_DIGITS else Decimal(text)


# Created once, since creating a decoder, as `json.loads` does, takes longer than parsing a small body.
DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)
# Decodes long bodies and long numbers. It calls Python functions for their parts, so that other threads can run.
INTERRUPTIBLE: Final = json.JSONDecoder(
    parse_float=Decimal, parse_int=_whole, parse_constant=_no_constant, object_pairs_hook=dict
)
