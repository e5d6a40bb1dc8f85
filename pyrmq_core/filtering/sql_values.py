"""The values of SQL92 expressions, and their comparison by RocketMQ's rules.

A value is a property's text, a number (Java's int, long or double), or a truth value. A comparison reads a text as the
type of the other value, and fails if it is something else, even another type of number. Source:
filter/expression/ComparisonExpression.java (__compare), Integer.valueOf, Double.valueOf.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from pyrmq_core.protocol.java.integers import parse_int, parse_long


class Long(int):
    """A whole number of Java's type long. An `int` that is no `Long` stands for Java's int."""

    __slots__ = ()


Number = int | Long | float
Value = bool | Number | str | None

DECIMAL: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?",
)
JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


class Incomparable(Exception):
    """An error for a comparison that raises in Java. The message then does not pass, whatever the expression."""


def compare(left: bool | Number | str, right: bool | Number | str) -> int:
    """Returns -1, 0 or 1 if the left value is less, equal or greater. Returns -1 for a truth value and a number.

    Raises `Incomparable` for a text that cannot be read as the other value's type, and for a truth value before a text.
    """
    if isinstance(left, bool):
        if isinstance(right, str):
            raise Incomparable
        return _order(left, right) if isinstance(right, bool) else -1
    if isinstance(left, str):
        return _order(left, right) if isinstance(right, str) else compare(_read(left, right), right)
    if isinstance(right, bool):
        return -1
    right = _read(right, left) if isinstance(right, str) else right
    if isinstance(left, float) or isinstance(right, float):
        return _order_doubles(float(left), float(right))
    return _order(left, right)


def compare_doubles(left: str, right: str) -> int:
    return _order_doubles(_double(left), _double(right))


def _order(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _order_doubles(left: float, right: float) -> int:
    return (left > right) - (left < right) or (_rank(left) > _rank(right)) - (_rank(left) < _rank(right))


def _rank(number: float) -> int:
    return 2 if math.isnan(number) else int(math.copysign(1.0, number) > 0)


def _read(text: str, like: bool | Number) -> bool | Number:
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return _double(text)
    try:
        return Long(parse_long(text)) if isinstance(like, Long) else parse_int(text)
    except ValueError:
        raise Incomparable from None


def _double(text: str) -> float:
    trimmed = text.strip(JAVA_BLANKS)
    if DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD") if trimmed[-1] in "fFdD" else trimmed)
    hexadecimal = HEXADECIMAL.fullmatch(trimmed)
    if hexadecimal is None:
        raise Incomparable
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -math.inf if trimmed.startswith("-") else math.inf
