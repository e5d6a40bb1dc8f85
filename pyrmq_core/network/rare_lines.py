"""Limits for repeated log lines, so that a peer cannot fill the log by causing the same line again and again."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Final

SECONDS_BETWEEN: Final = 60.0
MAX_KEYS: Final = 64


class RareLine:
    """A limit for one log line. `is_due` returns True the first time, and then at most once in `seconds`."""

    __slots__ = ("_due", "_left_out", "_seconds")

    def __init__(self, seconds: float = SECONDS_BETWEEN) -> None:
        self._seconds = seconds
        self._due = 0.0
        self._left_out = 0

    def is_due(self, now: float | None = None) -> bool:
        now = time.monotonic() if now is None else now
        if now < self._due:
            self._left_out += 1
            return False
        self._due = now + self._seconds
        return True

    def is_over(self, now: float) -> bool:
        return now >= self._due

    def left_out(self) -> str:
        count, self._left_out = self._left_out, 0
        return f" ({count} more since the last such line)" if count else ""


class RareLines:
    """A `RareLine` for each key, such as a peer's address. Beyond `most` keys, further ones share one `RareLine`."""

    def __init__(self, most: int = MAX_KEYS, seconds: float = SECONDS_BETWEEN) -> None:
        self._most = most
        self._seconds = seconds
        self._lines: dict[Hashable, RareLine] = {}
        self._others = RareLine(seconds)

    def of(self, key: Hashable, now: float | None = None) -> RareLine:
        """Returns the `RareLine` of a key.

        If `most` keys have one already, those whose time has passed at `now` (monotonic seconds) are removed first.
        """
        if key not in self._lines and len(self._lines) >= self._most:
            now = time.monotonic() if now is None else now
            self._lines = {subject: line for subject, line in self._lines.items() if not line.is_over(now)}
            if len(self._lines) >= self._most:
                return self._others
        return self._lines.setdefault(key, RareLine(self._seconds))
