"""Shows a message's body, in parts if it is long: as text, as JSON with a line for each member, or in hexadecimal."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, NoReturn

PART_BYTES: Final = 64 * 1024
HEX_PART_BYTES: Final = 4096
SUMMARY_CHARACTERS: Final = 150
# A summary is made of at most this many bytes of a body, since a JSON escape of one character may have six.
SUMMARY_BYTES: Final = 6 * SUMMARY_CHARACTERS + 1
NAME_CHARACTERS: Final = 120
BYTES_A_LINE: Final = 16
DEEPEST_INDENT: Final = 32
FORMS: Final = ("text", "json", "hex")
# The longest body whose JSON is laid out: a broker's default limit for messages. Parsing it takes up to a second, and
# 25 times its size in memory.
JSON_BYTES: Final = 4 << 20
# A token of JSON. A string at the end of a cut body may lack its closing quote.
JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[{}\[\],:]|[^\s{}\[\],:"]+')
# The beginning of a text that is probably JSON, for texts whose end is cut off.
JSON_BEGIN: Final = re.compile(r'\s*(\{\s*"|\[\s*["{\[])')
JSON_ESCAPES: Final = re.compile(r'(?:\\u[0-9A-Fa-f]{4})+|\\["\\/bfnrt]')
STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]')


@dataclass(frozen=True, slots=True)
class BodyText:
    """A part of a body as a page shows it: the bytes from `start` to `end`, in one of `FORMS`. `part` counts from 1."""

    form: str
    text: str
    size_bytes: int
    start: int
    end: int
    part: int
    parts: int


def body_text(body: bytes, form: str = "", part: int = 1) -> BodyText:
    """Returns one part of a message's body in the requested form, or in a form that can show it.

    No part begins within a character. The layout adds only blanks and line ends to JSON, so that all parts joined are
    the complete JSON. A body of more than `JSON_BYTES` is not laid out. Formatting takes at most a second.
    """
    if form != "hex" and (form == "text" or _text(body[:PART_BYTES], len(body) <= PART_BYTES) is not None):
        parts, number = _parts(body, PART_BYTES, part)
        start, end = (_boundary(body, position * PART_BYTES) for position in (number - 1, number))
        text = _text(body[start:end], whole=True)
        longest = {"json": JSON_BYTES, "": PART_BYTES}.get(form, -1)
        laid_out = _laid_out(body, start, end) if len(body) <= longest else None
        if laid_out is not None:
            return BodyText("json", laid_out, len(body), start, end, number, parts)
        text = body[start:end].decode(errors="replace") if text is None else text
        return BodyText("text", text, len(body), start, end, number, parts)
    parts, number = _parts(body, HEX_PART_BYTES, part)
    start, end = (number - 1) * HEX_PART_BYTES, min(len(body), number * HEX_PART_BYTES)
    return BodyText("hex", _hex(body[start:end], start), len(body), start, end, number, parts)


def _parts(body: bytes, size: int, wanted: int) -> tuple[int, int]:
    parts = max(1, -(-len(body) // size))
    return parts, min(max(1, wanted), parts)


def _boundary(body: bytes, position: int) -> int:
    """Returns the last position at or before `position` at which no UTF-8 character is cut."""
    if position >= len(body):
        return len(body)
    starts = (at for at in range(position, max(-1, position - 4), -1) if body[at] & 0xC0 != 0x80)
    return next(starts, position)


def file_name(*names: object, suffix: str = "bin") -> str:
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(map(str, names))).lstrip(".-")
    return f"{safe[-NAME_CHARACTERS:] or 'body'}.{suffix}"


def summary(body: bytes) -> str:
    """Returns the beginning of the body on one line: the members of JSON, other text, or hexadecimal."""
    is_whole = len(body) < SUMMARY_BYTES
    text = _text(body[: SUMMARY_BYTES - 1], is_whole)
    if text is None:
        return f"{body[:BYTES_A_LINE].hex(' ')}{' …' if len(body) > BYTES_A_LINE else ''}"
    if _is_json(text) if is_whole else JSON_BEGIN.match(text):
        text = _members(text, is_whole)
    line = " ".join(text.split())
    return line if len(line) <= SUMMARY_CHARACTERS else line[: SUMMARY_CHARACTERS - 1] + "…"


def member_names(body: bytes) -> list[str]:
    """Returns the names of the members of a JSON object in the first part of a body."""
    text = _text(body, whole=False)
    if text is None or not JSON_BEGIN.match(text):
        return []
    names, depth, before = list[str](), 0, ""
    for token in JSON_TOKEN.findall(text):
        if token == ":" and depth == 1 and before[:1] == '"':
            names.append(before[1:-1])
        depth += (token in ("{", "[")) - (token in ("}", "]"))
        before = token
    return names


def _members(text: str, is_whole: bool) -> str:
    """Formats JSON without quotes, escapes and outer braces. Unless `is_whole`, the closing brace is missing."""
    tokens = JSON_TOKEN.findall(text)
    if tokens[0] == "{" and len(tokens) > 2:
        tokens = tokens[1:-1] if is_whole else tokens[1:]
    return "".join(map(_readable, tokens))


def _readable(token: str) -> str:
    if token in (",", ":"):
        return f"{token} "
    return JSON_ESCAPES.sub(_undone, token[1:].removesuffix('"')) or token if token[0] == '"' else token


def _undone(escapes: re.Match[str]) -> str:
    # Characters that control a terminal or disguise a text stay escapes.
    return "".join(
        character if character.isprintable() or character.isspace() else character.encode("unicode_escape").decode()
        for character in json.loads(f'"{escapes[0]}"')
    )


def _laid_out(body: bytes, start: int, end: int) -> str | None:
    """Returns the bytes from `start` to `end` of a JSON object or list with line breaks, or None for any other body."""
    text = _text(body, whole=True)
    if text is None or not _is_json(text):
        return None
    first = len(body[:start].decode())
    return _lines(text, first, first + len(body[start:end].decode()))


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:  # parsed only to find errors; `len` discards the values
        json.loads(text, object_pairs_hook=len, parse_int=len, parse_float=len, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _lines(text: str, start: int, end: int) -> str:
    """Returns the characters from `start` to `end` of valid JSON, with line breaks and indents added."""
    depth, position = 0, start
    for match in STRING_OR_BRACKET.finditer(text, 0):
        if match.start() >= start:
            break
        if match.end() > start:  # a string that crosses `start`
            position = min(match.end(), end)
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)
    pieces = [text[start:position]]
    before = text[:position].rstrip()[-1:] if position == start else '"'
    for match in JSON_TOKEN.finditer(text, position):
        if match.start() >= end:
            break
        token = text[match.start() : min(match.end(), end)]
        closes = token in ("}", "]")
        depth -= closes
        if before == "," or (before in ("{", "[")) != closes:
            pieces.append("\n" + "  " * min(depth, DEEPEST_INDENT))
        pieces.append(": " if token == ":" else token)
        depth += token in ("{", "[")
        before = token
    return "".join(pieces)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def _text(shown: bytes, whole: bool) -> str | None:
    try:
        text = shown.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(shown) - 3:  # an error in the last 3 bytes may be a cut character
            return None
        text = shown[: error.start].decode()
    return None if any(_is_control(character) for character in text) else text


def _is_control(character: str) -> bool:
    return (character < " " and character not in "\t\n\r") or character == "\x7f"


def _hex(shown: bytes, first: int) -> str:
    lines = []
    for start in range(0, len(shown), BYTES_A_LINE):
        line = shown[start : start + BYTES_A_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        lines.append(f"{first + start:08x}  {line.hex(' '):<{3 * BYTES_A_LINE - 1}}  {letters}")
    return "\n".join(lines)
