"""A message's body for reading: as it is, as JSON on many lines, or as bytes in hexadecimal; a long one is cut."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, NoReturn

SHOWN_BYTES: Final = 64 * 1024
HEX_SHOWN_BYTES: Final = 4096
SUMMARY_CHARACTERS: Final = 80
BYTES_A_LINE: Final = 16
DEEPEST_INDENT: Final = 32
FORMS: Final = ("text", "json", "hex")
JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True)
class BodyText:
    """A body as a page shows it; `form` is one of `FORMS`, `left_out_bytes` the length of what is not shown."""

    form: str
    text: str
    size_bytes: int
    left_out_bytes: int


def body_text(body: bytes, form: str = "") -> BodyText:
    """Returns the body in the form that is wanted, or else in the first of `FORMS` that it can be shown in.

    JSON differs from the text in blanks and line ends alone: names and numbers keep each of their characters.
    """
    shown = body[:SHOWN_BYTES]
    is_whole, left_out = len(shown) == len(body), len(body) - len(shown)
    text = _text(shown, is_whole)
    laid_out = _laid_out(text) if form == "json" and text is not None and is_whole else None
    if laid_out is not None:
        return BodyText("json", laid_out, len(body), left_out)
    if form == "text" and text is None:
        text = shown.decode(errors="replace")
    if form != "hex" and text is not None:
        return BodyText("text", text, len(body), left_out)
    shown = body[:HEX_SHOWN_BYTES]
    return BodyText("hex", _hex(shown), len(body), len(body) - len(shown))


def summary(body: bytes) -> str:
    """Returns the beginning of the body on one line; a body that is no text is shown as bytes."""
    text = _text(body[: 4 * SUMMARY_CHARACTERS], len(body) <= 4 * SUMMARY_CHARACTERS)
    if text is None:
        return f"{body[:BYTES_A_LINE].hex(' ')}{' …' if len(body) > BYTES_A_LINE else ''}"
    line = " ".join(text.split())
    return line if len(line) <= SUMMARY_CHARACTERS else line[: SUMMARY_CHARACTERS - 1] + "…"


def _laid_out(text: str) -> str | None:
    """Returns the JSON of an object or a list with a line for each member; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    pieces, depth, before = [], 0, ""
    for token in JSON_TOKEN.findall(text):
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
        if whole or error.start < len(shown) - 3:  # a character of UTF-8 has 4 bytes at most: it may have been cut
            return None
        text = shown[: error.start].decode()
    return None if any(_is_control(character) for character in text) else text


def _is_control(character: str) -> bool:
    return (character < " " and character not in "\t\n\r") or character == "\x7f"


def _hex(shown: bytes) -> str:
    lines = []
    for start in range(0, len(shown), BYTES_A_LINE):
        line = shown[start : start + BYTES_A_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        lines.append(f"{start:08x}  {line.hex(' '):<{3 * BYTES_A_LINE - 1}}  {letters}")
    return "\n".join(lines)
