"""`RareLine`: a limit on how often a log line is repeated that a peer could cause without end."""

from __future__ import annotations

import time
from typing import Final

SECONDS_BETWEEN: Final = 60.0


class RareLine:
    """Decides when a line that repeats is written: the first at once, then one in `seconds`."""

    __slots__ = ("_due", "_left_out", "_seconds")

    def __init__(self, seconds: float = SECONDS_BETWEEN) -> None:
        self._seconds = seconds
        self._due = 0.0
        self._left_out = 0

    def is_due(self, now: float | None = None) -> bool:
        """Returns True when the line is to be written now; `now` is on the monotonic clock."""
        now = time.monotonic() if now is None else now
        if now < self._due:
            self._left_out += 1
            return False
        self._due = now + self._seconds
        return True

    def left_out(self) -> str:
        """Returns an ending for this line: how many were left out since the last that was written."""
        count, self._left_out = self._left_out, 0
        return f" ({count} more since the last such line)" if count else ""
