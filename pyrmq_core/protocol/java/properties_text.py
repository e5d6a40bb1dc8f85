"""Configuration files in Java's `key=value` form, as RocketMQ's NameServer and broker read them.

The whole syntax of java.util.Properties.load is supported: comments after `#` or `!`, keys that end at `=`, `:` or a
blank, lines continued after a backslash, and escapes such as `\\t` and `\\uXXXX`. Java reads a file as ISO-8859-1. Here
the caller decodes the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pyrmq_core.errors import InvalidArgument

BLANKS: Final = " \t\f"
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
# A key ends at the first separator or blank without a backslash before it.
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u([0-9a-fA-F]{4})|.)", re.DOTALL)


def parse_java_properties(text: str) -> dict[str, str]:
    """Returns keys and values. The last of equal keys wins. Raises `InvalidArgument` for a broken `\\u` escape."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end = _end(_KEY, line, 0)
        value_start = _end(_SEPARATOR, line, key_end)
        properties[_unescape(line[:key_end], line)] = _unescape(line[value_start:], line)
    return properties


def format_java_properties(properties: Mapping[str, str]) -> str:
    """Returns one line for each key, sorted and escaped. `parse_java_properties` reads the same values back."""
    return "".join(f"{_escape_key(key)}={_escape(value)}\n" for key, value in sorted(properties.items()))


def _logical_lines(text: str) -> Iterator[str]:
    """Yields the logical lines of a text, without comments and blank lines.

    A line that ends with an odd number of backslashes is joined with the next one.
    """
    pending = ""
    for natural in _LINE_END.split(text):
        line = natural.lstrip(BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _end(pattern: re.Pattern[str], line: str, start: int) -> int:
    match = pattern.match(line, start)
    return start if match is None else match.end()


def _unescape(text: str, line: str) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        escape, digits = match.groups()
        if digits is not None:
            return chr(int(digits, 16))
        if escape == "u":
            raise InvalidArgument(f"the configuration line {line[:80]!r} has a \\u that four hex digits do not follow")
        return ESCAPES.get(escape, escape)

    # Two \u escapes may be the surrogates of one character.
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape_key(key: str) -> str:
    return re.sub(r"([=: #!])", r"\\\1", _escape_characters(key))


def _escape(value: str) -> str:
    escaped = _escape_characters(value)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape_characters(text: str) -> str:
    escaped = text.replace("\\", "\\\\")
    for letter, character in ESCAPES.items():
        escaped = escaped.replace(character, "\\" + letter)
    return escaped
