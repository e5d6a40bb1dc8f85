"""Limits of received JSON: its depth, and that every value in it can be written again.

Python reads a value nested just below its own limit and then fails to write it. It also reads a lone surrogate, which
no file in UTF-8 can hold. RocketMQ's own bodies keep these limits: they are nested seven deep at most (the mappings of
static topics), and Java writes a lone surrogate as `?`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Final

MAX_DEPTH: Final = 32
# Text without brackets outside of strings.
_FLAT: Final = r'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+'


def _nested(depth: int) -> str:
    """Returns a pattern for one object or array of at most this depth; `{` may end with `]`, which the parser refuses.

    All repetitions are possessive: with backtracking, a hostile text of some megabytes would block a server for
    minutes.
    """
    pattern = rf"[{{\[]{_FLAT}[}}\]]"
    for _ in range(depth - 1):
        pattern = rf"[{{\[]{_FLAT}(?:{pattern}{_FLAT})*+[}}\]]"
    return pattern


_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NO_BRACKETS: Final = r'[^"{}\[\],]*+'


# Each pattern takes 5 to 13 ms to compile, which most processes never need.
@cache
def _value() -> re.Pattern[str]:
    return re.compile(_nested(MAX_DEPTH), re.DOTALL)


@cache
def _string() -> re.Pattern[str]:
    return re.compile(_STRING, re.DOTALL)


@cache
def _text() -> re.Pattern[str]:
    return re.compile(rf"{_FLAT}(?:{_nested(MAX_DEPTH)}{_FLAT})*+", re.DOTALL)


@cache
def _parts() -> re.Pattern[str]:
    """Returns a pattern for parts of an object or array, each with the comma after it."""
    return re.compile(rf"(?:{_NO_BRACKETS}(?:(?:{_STRING}|{_nested(MAX_DEPTH)}){_NO_BRACKETS})*+,)*+", re.DOTALL)


def check_depth(text: str) -> None:
    """Raises `ValueError` for a text nested deeper than `MAX_DEPTH`."""
    if text.count("{") + text.count("[") > MAX_DEPTH and _text().fullmatch(text) is None:
        raise ValueError(_too_deep())


def container_end(text: str, start: int) -> int:
    """Returns the end of the object or array at `start`; `ValueError` if it has none or is nested too deeply."""
    match = _value().match(text, start)
    if match is None:
        raise ValueError(_too_deep())
    return match.end()


def ends_before(text: str, start: int, limit: int) -> bool:
    """Returns whether the object, array or string at `start` ends within the text's first `limit` characters."""
    pattern = _string() if text[start] == '"' else _value()
    return pattern.match(text, start, limit) is not None


def parts_end(text: str, start: int, limit: int) -> int:
    """Returns the end of the complete parts of an object or array from `start` on: after a last comma below `limit`."""
    match = _parts().match(text, start, limit)
    return match.end() if match is not None else start


def check_value(value: Any, text: str, start: int, end: int) -> None:
    """Raises `ValueError` if the value, read from `text[start:end]`, cannot be written again."""
    if text.count("{", start, end) + text.count("[", start, end) > MAX_DEPTH and container_end(text, start) != end:
        raise ValueError(_too_deep())
    check_surrogates(value, text, start, end)


def check_surrogates(value: Any, text: str, start: int, end: int) -> None:
    """Raises `ValueError` for a value with a lone surrogate, which only an escape in the text can produce."""
    if text.find("\\ud", start, end) >= 0 or text.find("\\uD", start, end) >= 0:
        json.dumps(value, ensure_ascii=False).encode()


def _too_deep() -> str:
    return f"it is nested deeper than {MAX_DEPTH}, or its brackets do not close"
