"""`FollowLines`: the log lines of a slave about its master, as few as its state changes."""

from __future__ import annotations

import re
from typing import Final

import trio

from pyrmq_core.network.log_lines import line_logger

log = line_logger(__name__)

# A failure that alternates with others, or with following, is logged once in this time.
REPEAT_SECONDS: Final = 60.0
NUMBERS: Final = re.compile(r"\d+")


class FollowLines:
    """Logs that the slave follows, or why not; lines that differ in numbers alone count as equal."""

    def __init__(self) -> None:
        self._is_followed = False
        self._is_failure_logged = True  # so that the first success is logged
        self._last = ""
        self._logged_at: dict[str, float] = {}

    def follows(self, address: str) -> None:
        if self._is_followed:
            return
        self._is_followed = True
        if self._is_failure_logged:
            self._is_failure_logged = False
            log.info("this slave follows the master at %s", address)

    def fails(self, line: str) -> None:
        """Logs a failure, unless it is the last one that goes on, or one that was logged a short time ago."""
        now, kind = trio.current_time(), NUMBERS.sub("", line)
        goes_on = kind == self._last and not self._is_followed
        self._is_followed, self._last = False, kind
        self._logged_at = {one: at for one, at in self._logged_at.items() if now < at + REPEAT_SECONDS}
        if not goes_on and kind not in self._logged_at:
            self._logged_at[kind] = now
            self._is_failure_logged = True
            log.warning("%s", line)
