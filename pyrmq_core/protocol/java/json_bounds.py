"""Limits of received JSON: its depth, and no lone surrogates.

Python reads JSON that it cannot write again: values nested almost too deeply, and lone surrogates, which UTF-8 cannot
encode. RocketMQ's own bodies are within these limits: they are nested at most seven deep, and Java writes a lone
surrogate as `?`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Final

MAX_DEPTH: Final = 32
# Matches text that has brackets only inside strings.
_FLAT: Final = r'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+'


def _nested(depth: int) -> str:
    """Returns a regular expression for one object or array that is nested at most `depth` deep.

    The expression lets `]` close a `{`, which the JSON parser refuses later. All its repetitions are possessive: with
    backtracking, a hostile text of some megabytes would block a server for minutes.
    """
    pattern = rf"[{{\[]{_FLAT}[}}\]]"
    for _ in range(depth - 1):
        pattern = rf"[{{\[]{_FLAT}(?:{pattern}{_FLAT})*+[}}\]]"
    return pattern


# Compiled on first use, since that takes 5 to 13 ms and most processes never need it.
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
