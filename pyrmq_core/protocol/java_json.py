"""JSON bodies as Java's fastjson writes them: bare integer keys, which strict JSON has not.

`{0:"127.0.0.1:10911"}` stands in routes, cluster information and offset tables (fastjson 1.2.83, seen on released
servers). Reading accepts strict JSON too. `dumps` is strict, which every fastjson reads; `dumps_bare` is for those who
know no better.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pyrmq_core.errors import BodyError

# Outside strings only: a string is matched first and left alone.
_BARE_KEY: Final = re.compile(r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(\s*:)', re.DOTALL)


def loads(body: bytes | memoryview, what: str) -> Any:
    """The value of a body; bare integer keys become text keys. `BodyError` names `what` when it is not JSON."""
    try:
        text = bytes(body).decode()
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(_BARE_KEY.sub(_quote, text))
    except (ValueError, RecursionError) as error:
        raise BodyError(f"{what}: the body is not JSON: {error}") from error


def load_object(body: bytes | memoryview, what: str) -> dict[str, Any]:
    """As `loads`, for a body that has to be an object."""
    value = loads(body, what)
    if not isinstance(value, dict):
        raise BodyError(f"{what}: the body is not a JSON object")
    return value


def dumps(value: Any) -> bytes:
    """Compact strict JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def dumps_bare(value: Any) -> bytes:
    """As `dumps`, with the bare names of fastjson for integer keys."""
    return _bare(value).encode()


def _bare(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_bare(name)}:{_bare(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_bare, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _quote(match: re.Match[str]) -> str:
    string, before, number, after = match.groups()
    return string if string is not None else f'{before}"{number}"{after}'
