"""Limits of received JSON: how deeply it may be nested, and which texts it may hold.

Python can read a value nested just below its own limit and then fail to write it. It also reads a lone surrogate, which
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
    """Returns a regular expression for one object or array that is nested at most `depth` deep.

    It lets `]` close a `{`, which the JSON parser refuses later. All repetitions are possessive: with backtracking, a
    hostile text of some megabytes would block a server for minutes.
    """
    pattern = rf"[{{\[]{_FLAT}[}}\]]"
    for _ in range(depth - 1):
        pattern = rf"[{{\[]{_FLAT}(?:{pattern}{_FLAT})*+[}}\]]"
    return pattern


# The pattern takes 5 to 13 ms to compile, which most processes never need.
@cache
def _text() -> re.Pattern[str]:
    return re.compile(rf"{_FLAT}(?:{_nested(MAX_DEPTH)}{_FLAT})*+", re.DOTALL)


def check_depth(text: str) -> None:
    if text.count("{") + text.count("[") > MAX_DEPTH and _text().fullmatch(text) is None:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH}, or its brackets do not close")


def check_surrogates(value: Any, text: str, start: int, end: int) -> None:
    """Raises `ValueError` if `value`, which was parsed from `text[start:end]`, contains a lone surrogate."""
    if text.find("\\ud", start, end) >= 0 or text.find("\\uD", start, end) >= 0:
        json.dumps(value, ensure_ascii=False).encode()
