"""JSON bodies as Java's fastjson writes them, with bare integer keys, which strict JSON does not allow.

Keys as in `{0:"127.0.0.1:10911"}` occur in routes, cluster information and offset tables (fastjson 1.2.83). Reading
accepts strict JSON, too. `dumps` writes strict JSON, which every fastjson reads. `dumps_bare` writes bare keys, for old
peers that expect them.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.java.json_bounds import check_depth, check_surrogates

# The first alternative matches strings, which stay unchanged, so that keys are found only outside of strings. The
# repetitions are possessive: with backtracking, a hostile text of some megabytes would block a server for minutes.
_BARE_KEY: Final = re.compile(r'("(?:[^"\\]|\\.)*+"?)|([{,]\s*+)(-?\d++)(\s*:)', re.DOTALL)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is beyond any number")
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# Refuses infinities and NaN, which cannot be converted to an offset or a count.
DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)


def loads(body: bytes | memoryview, what: str) -> Any:
    """Returns the value of a JSON body. Integer keys without quotes become text keys.

    Raises `BodyError`, which names `what`, for a body that is not JSON, is nested too deeply, or holds a lone
    surrogate.
    """
    try:
        return parse(bytes(body).decode())
    except (ValueError, RecursionError) as error:
        raise BodyError(f"{what}: the body is not JSON: {error}") from error


def parse(text: str) -> Any:
    """Returns the value of a JSON text, as `loads` does for a body. Raises `ValueError`."""
    check_depth(text)
    try:
        value = DECODER.decode(text)
    except ValueError:
        return parse_bare(text)
    check_surrogates(value, text, 0, len(text))
    return value


def parse_bare(text: str) -> Any:
    """Returns the value of a JSON text whose integer keys may be bare. The caller has to check its depth first."""
    value = DECODER.decode(_BARE_KEY.sub(_quote, text))
    check_surrogates(value, text, 0, len(text))
    return value


def load_object(body: bytes | memoryview, what: str) -> dict[str, Any]:
    value = loads(body, what)
    if not isinstance(value, dict):
        raise BodyError(f"{what}: the body is not a JSON object")
    return value


def dumps(value: Any) -> bytes:
    """Returns compact strict JSON in UTF-8. A lone surrogate becomes `?`, as in Java."""
    return COMPACT.encode(value).encode("utf-8", "replace")


def dumps_bare(value: Any) -> bytes:
    """Returns compact JSON in UTF-8 with integer keys without quotes, as fastjson writes them."""
    return _bare(value).encode("utf-8", "replace")


def _bare(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_bare(name)}:{_bare(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_bare, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _quote(match: re.Match[str]) -> str:
    string, before, number, after = match.groups()
    return string if string is not None else f'{before}"{number}"{after}'
