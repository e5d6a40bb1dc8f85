"""A message's body for reading: as JSON, as text, or as bytes in hexadecimal; a long one is cut."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

SHOWN_BYTES: Final = 64 * 1024
HEX_SHOWN_BYTES: Final = 4096
SUMMARY_CHARACTERS: Final = 80
BYTES_A_LINE: Final = 16
FORMS: Final = ("json", "text", "hex")


@dataclass(frozen=True, slots=True)
class BodyText:
    """A body as a page shows it; `form` is one of `FORMS`, `left_out_bytes` the length of what is not shown."""

    form: str
    text: str
    size_bytes: int
    left_out_bytes: int


def body_text(body: bytes, form: str = "") -> BodyText:
    """Returns the body in the form that is asked for, or in the first of JSON, text and hex that it can be shown in.

    JSON is laid out anew, so numbers may look different; text is the body's own.
    """
    shown = body[:SHOWN_BYTES]
    whole, left_out = len(shown) == len(body), len(body) - len(shown)
    if form == "text":
        return BodyText("text", shown.decode(errors="replace"), len(body), left_out)
    if form != "hex":
        for name, make in (("json", _json), ("text", _text)):
            text = make(shown, whole)
            if text is not None:
                return BodyText(name, text, len(body), left_out)
    shown = body[:HEX_SHOWN_BYTES]
    return BodyText("hex", _hex(shown), len(body), len(body) - len(shown))


def summary(body: bytes) -> str:
    """Returns the beginning of the body on one line; bytes that are no text are shown as such."""
    text = _text(body[: 4 * SUMMARY_CHARACTERS], len(body) <= 4 * SUMMARY_CHARACTERS)
    if text is None:
        return f"{body[:BYTES_A_LINE].hex(' ')}{' …' if len(body) > BYTES_A_LINE else ''}"
    line = " ".join(text.split())
    return line if len(line) <= SUMMARY_CHARACTERS else line[: SUMMARY_CHARACTERS - 1] + "…"


def _json(shown: bytes, whole: bool) -> str | None:
    if not whole or shown[:1] not in (b"{", b"["):
        return None
    try:
        text = json.dumps(json.loads(shown), indent=2, ensure_ascii=False)
        text.encode()  # a lone surrogate, written as an escape, cannot be sent to a browser
    except (ValueError, RecursionError):
        return None
    return text


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
