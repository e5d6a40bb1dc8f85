"""Reports failures of background sends that the program never reads, as asyncio does for its futures.

A failure that the program drops unread is logged as a warning, at most once a minute. When a producer ends, the number
of its unread failures is logged.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Final

from pyrmq_core.errors import RocketMQError
from pyrmq_core.network.rare_lines import RareLine

log = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES: Final = 60.0


class UnseenFailures:
    """A counter of one producer's failed background sends whose error the program has not read."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._lock = threading.Lock()  # any thread may read a result
        self._count = 0
        self._first = ""  # as text, since the error's traceback would keep its send alive
        self._line = RareLine(SECONDS_BETWEEN_LINES)

    def failed(self, error: RocketMQError) -> UnseenFailure:
        """Counts a failure. The send keeps the returned object, which logs the failure if it is never read."""
        with self._lock:
            if not self._count:
                self._first = str(error)
            self._count += 1
        return UnseenFailure(self, error)

    def seen(self) -> None:
        with self._lock:
            self._count -= 1

    def dropped(self, error: RocketMQError) -> None:
        if self._line.is_due():
            log.warning(
                "a background send of producer %s failed, and its result was dropped unseen: %s%s",
                self._group,
                error,
                self._line.left_out(),
            )

    def report(self) -> None:
        """Logs the number of failures that the program has not read, when the producer ends."""
        if self._count:
            log.warning(
                "producer %s ends, and the program has not looked at the failures of %d of its background sends; "
                "wait for the result of each. The first: %s",
                self._group,
                self._count,
                self._first,
            )


class UnseenFailure:
    """A failure that the program has not read. It logs a warning if it is garbage-collected unread."""

    __slots__ = ("_error", "_failures")

    def __init__(self, failures: UnseenFailures, error: RocketMQError) -> None:
        self._failures: UnseenFailures | None = failures
        self._error = error

    def look(self) -> None:
        failures, self._failures = self._failures, None
        if failures is not None:
            failures.seen()

    def __del__(self) -> None:
        failures = self._failures
        if failures is not None and not sys.is_finalizing():
            failures.dropped(self._error)
