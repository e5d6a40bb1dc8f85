"""JSON objects whose keys are objects, as fastjson writes a map with such keys: `{{"queueId":0}:5}`.

That is not valid JSON. Reading replaces each such key by a string with the key's JSON, and writing reverses this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.java.json_bounds import check_depth
from pyrmq_core.protocol.java.json_text import dumps, parse_bare

# The first alternative matches strings, which stay unchanged. The second matches a key: an object without brackets in
# it. The repetitions are possessive, as in `json_text`.
_STRING: Final = r'"(?:[^"\\]++|\\.)*+"?'
_KEY: Final = re.compile(rf'({_STRING})|(\{{(?:[^{{}}\[\]"]++|"(?:[^"\\]++|\\.)*+")*+\}})(\s*+:)', re.DOTALL)


def load_object_keys(body: bytes | memoryview, what: str) -> dict[str, Any]:
    """Parses a body to a JSON object. A key that is itself an object becomes a string with the key's JSON.

    Raises `BodyError`, whose text begins with `what`, if the body is not a JSON object.
    """
    try:
        text = bytes(body).decode()
        check_depth(text)
        value = parse_bare(_KEY.sub(_quote, text))
    except (ValueError, RecursionError) as error:
        raise BodyError(f"{what}: the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BodyError(f"{what}: the body is not a JSON object")
    return value


def load_key(text: str) -> dict[str, Any]:
    value = parse_bare(text)
    if not isinstance(value, dict):
        raise ValueError(f"{text[:80]!r} is no object")
    return value


def dump_object(rows: Iterable[tuple[Any, bytes]]) -> bytes:
    """Returns the JSON of an object in UTF-8.

    Each of the `rows` is a member: its key, which is a text or an object, and the JSON of its value.
    """
    return b"{" + b",".join([dumps(name) + b":" + value for name, value in rows]) + b"}"


def _quote(match: re.Match[str]) -> str:
    string, name, colon = match.groups()
    return string if string is not None else dumps(name).decode() + colon
