"""The types of options: functions that parse an option's text. The argument `name` is for errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pyrmq_core import InvalidArgument, parse_nameservers
from pyrmq_spark.offsets import NoMatchStrategy
from pyrmq_spark.spark_errors import InvalidOption

MAX_INT: Final = 2**31 - 1


def text(value: str, name: str) -> str:
    if not value.strip():
        raise InvalidOption(f"option {name} is empty")
    return value.strip()


def addresses(value: str, name: str) -> str:
    """Returns the text. Raises `InvalidOption` unless it is a list of NameServer addresses."""
    try:
        servers = parse_nameservers(value)
    except InvalidArgument as error:
        raise InvalidOption(f"option {name} is {value!r}: {error}") from None
    if not servers:
        raise InvalidOption(f"option {name} is {value!r} and names no host:port")
    return value.strip()


def page(value: str, name: str) -> str:
    """Returns the text. Raises `InvalidOption` unless it is a URL, from which the list of NameServers is fetched."""
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value.strip()):
        raise InvalidOption(f"option {name} is {value!r}; it must be the URL of a page with host:port;host:port")
    return value.strip()


class Secret(str):
    """The text of a secret, whose `repr` hides it, since Spark and debuggers may show the values of all locals."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def secret(value: str, name: str) -> str:
    """Returns the text as a `Secret`, which no error shows."""
    if not value:
        raise InvalidOption(f"option {name} is empty")
    return Secret(value)


def yes_or_no(value: str, name: str) -> bool:
    return one_of("true", "false")(value, name) == "true"


def topics(value: str, name: str) -> tuple[str, ...]:
    """Returns the names in a comma-separated text, each name once."""
    names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not names:
        raise InvalidOption(f"option {name} is {value!r} and names no topic")
    return names


def pattern(value: str, name: str) -> str:
    try:
        re.compile(text(value, name))
    except re.error as error:
        raise InvalidOption(f"option {name} is {value!r}, which is no regular expression: {error}") from None
    return value


def at_least(minimum: int, maximum: int = MAX_INT) -> Callable[[str, str], int]:
    def whole_number(value: str, name: str) -> int:
        if not re.fullmatch(r"\s*[0-9]{1,19}\s*", value) or not minimum <= int(value) <= maximum:
            raise InvalidOption(f"option {name} is {value!r}; it must be a whole number from {minimum} to {maximum}")
        return int(value)

    return whole_number


def milliseconds(minimum: int) -> Callable[[str, str], float]:
    number = at_least(minimum)
    return lambda value, name: number(value, name) / 1000


def one_of(*words: str) -> Callable[[str, str], str]:
    def word(value: str, name: str) -> str:
        for allowed in words:
            if value.strip().lower() == allowed.lower():
                return allowed
        raise InvalidOption(f"option {name} is {value!r}; it must be one of {', '.join(words)}")

    return word


TIME_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def time_span(value: str, name: str) -> float:
    """Returns the seconds in Spark's time string: `500ms`, `30s`, `15m`, `1h`, `1d`. Milliseconds need no unit."""
    match = re.fullmatch(r"([0-9]{1,12})\s*(ms|s|m|min|h|d)?", value.strip().lower())
    if match is None:
        raise InvalidOption(f"option {name} is {value!r}; it must be a time such as 500ms, 30s, 15m, 1h or 1d")
    return int(match[1]) * TIME_UNITS[match[2] or "ms"]


def strategy(value: str, name: str) -> NoMatchStrategy:
    return NoMatchStrategy(one_of(*(word.value for word in NoMatchStrategy))(value, name))
