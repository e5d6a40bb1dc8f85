"""Log messages in a single line, and texts from peers without characters that a terminal would interpret."""

from __future__ import annotations

import logging
import re
from typing import Final

# The most characters of a logged line, enough for a few names of some hundred characters.
MAX_LINE_CHARS: Final = 4_000

# Control characters, line ends of Unicode, marks that change the direction of text, and lone surrogates.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_STEERING: Final = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_FORMATTER: Final = logging.Formatter()


def one_line(text: str) -> str:
    r"""Returns the text as one line, in which line ends and control characters are escaped as in `\n`.

    Marks that change the direction of text are escaped, too. A text of more than 4,000 characters is cut.
    """
    if len(text) > MAX_LINE_CHARS:
        text = f"{text[:MAX_LINE_CHARS]}... ({len(text)} characters)"
    return _UNSAFE.sub(_escaped, text)


def visible_text(text: str) -> str:
    """Returns the text with escapes for control characters, and for marks that change the direction of text.

    A terminal then cannot interpret them. Tabs and newlines stay.
    """
    return _STEERING.sub(_escaped, text)


def line_logger(name: str) -> logging.Logger:
    """Returns the logger of that name, with a filter that writes each message as a single line (see `one_line`).

    Messages below the logger's level are not formatted.
    """
    logger = logging.getLogger(name)
    if not any(isinstance(present, _OneLine) for present in logger.filters):
        logger.addFilter(_OneLine())
    return logger


class _OneLine(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = one_line(record.getMessage()), None
        if record.exc_info and record.exc_text is None:
            # A traceback may quote a peer over several lines. The prefix shows that they are no log messages.
            traceback = _FORMATTER.formatException(record.exc_info)
            record.exc_text = "\n".join(f"  | {one_line(line)}" for line in traceback.splitlines())
        return True


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
