"""The text of wrong values in error messages: short, in one line, and without the bodies of messages."""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

from pyrmq_core.model import Message, MessageExt

MAX_SHOWN_CHARS: Final = 20


def shown(value: object) -> str:
    """Returns the `repr` of a short value, or the type and the size of a long one.

    A long value may be the body of a message, which must not appear in an error or a log.
    """
    kind = type(value).__name__
    if isinstance(value, Message | MessageExt):
        return f"a {kind} of topic {shown(value.topic)}"
    if value is None or isinstance(value, bool | int | float | str | type):
        text = repr(value)
        return text if len(text) <= MAX_SHOWN_CHARS + 2 else f"{kind} of length {len(str(value))}"
    if isinstance(value, Sized):
        return f"{kind} of length {len(value)}"
    return _short_repr(value, kind)


def _short_repr(value: object, kind: str) -> str:
    try:
        text = repr(value)
    except Exception:
        return f"a {kind}"
    return text if len(text) <= 8 * MAX_SHOWN_CHARS and text.isprintable() else f"a {kind}"
