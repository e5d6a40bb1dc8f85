"""JSON texts of commands, without characters that control a terminal, and shortened values for errors."""

from __future__ import annotations

import json
import re
from typing import Final

# Characters that JSON allows, but that control a terminal (there, C1 characters work like ESC) or disguise a text.
STEERING: Final = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# The most characters of a value in an error.
SHOWN_CHARACTERS: Final = 80


def shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def json_text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
