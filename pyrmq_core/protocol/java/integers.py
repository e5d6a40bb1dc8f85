"""Whole numbers as Java reads them: `Integer.parseInt` and `Long.parseLong`, and the numbers of a JSON body.

Python's `int` accepts more: blanks around a number, underscores in it, and any number of digits.
"""

from __future__ import annotations

import re
from typing import Final

MIN_INT: Final = -(2**31)
MAX_INT: Final = 2**31 - 1
MIN_LONG: Final = -(2**63)
MAX_LONG: Final = 2**63 - 1
# Java accepts digits of any script, but only up to U+FFFF: it sees later characters as surrogates.
_NUMBER: Final = re.compile(r"[+-]?[^\D\U00010000-\U0010FFFF]+")


def parse_int(text: str) -> int:
    """Returns the 32-bit integer in a decimal text. Raises `ValueError` where Java's `parseInt` fails."""
    value = int(text)
    if not (text.isascii() and text.isdecimal()):
        _check_spelling(text)
    if not MIN_INT <= value <= MAX_INT:
        raise ValueError("it is beyond 32 bits")
    return value


def parse_long(text: str) -> int:
    """Returns the 64-bit integer in a decimal text. Raises `ValueError` where Java's `parseLong` fails."""
    value = int(text)
    if not (text.isascii() and text.isdecimal()):
        _check_spelling(text)
    if not MIN_LONG <= value <= MAX_LONG:
        raise ValueError("it is beyond 64 bits")
    return value


def int_member(value: object) -> int:
    """Returns a JSON number, or a JSON string of digits, as a 32-bit integer. Raises `ValueError` or `TypeError`."""
    number = long_member(value)
    if not MIN_INT <= number <= MAX_INT:
        raise ValueError(f"{number} is beyond 32 bits")
    return number


def long_member(value: object) -> int:
    """Returns a JSON number, or a JSON string of digits, as a 64-bit integer. Raises `ValueError` or `TypeError`."""
    if isinstance(value, str):
        return parse_long(value)
    if not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} is no number")
    number = int(value)
    if not MIN_LONG <= number <= MAX_LONG:
        raise ValueError("a number is beyond 64 bits")
    return number


def _check_spelling(text: str) -> None:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("it is no number to Java")
