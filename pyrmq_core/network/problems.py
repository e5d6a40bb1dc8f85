"""`Problems`: a record of background requests that fail repeatedly, and their log lines.

No caller waits for a background request, so its failure can only be logged. The first failure in a row is an INFO line,
since most are temporary. The second is a warning, repeated at most once a minute. After a warning, an INFO line reports
the next success.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from pyrmq_core.errors import ResponseError, RocketMQError
from pyrmq_core.model import Problem
from pyrmq_core.network.rare_lines import RareLines
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.header_requests import ACL_REFUSAL

FAILURES_OF_A_PROBLEM: Final = 2

# Refusals that last until an operator changes a permission, a group or an expression.
LASTING_CODES: Final = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.MESSAGE_ILLEGAL,
    }
)


def is_lasting(error: Exception) -> bool:
    """Returns whether an error is a server's refusal that lasts until an operator changes something."""
    return isinstance(error, ResponseError) and (error.code in LASTING_CODES or error.remark.startswith(ACL_REFUSAL))


class Problems:
    """The failing background requests of one client, consumer or broker, each named by a kind and a subject.

    The kind and the subject are the two parts of a name such as "the heartbeat to 127.0.0.1:10911". `clock` returns
    seconds of a monotonic clock.
    """

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._failing: dict[tuple[str, str], Problem] = {}
        self._warned: set[tuple[str, str]] = set()
        self._first_lines = RareLines()
        self._warnings = RareLines()

    @property
    def present(self) -> tuple[Problem, ...]:
        """The requests whose last two tries failed, in the order of their first failures."""
        failing = tuple(self._failing.values())  # an atomic copy, since another thread may change it
        return tuple(problem for problem in failing if problem.failures >= FAILURES_OF_A_PROBLEM)

    def failed(
        self, kind: str, subject: str, error: Exception, *, line: Hashable = None, at_once: bool = False
    ) -> None:
        """Records a failure of a background request, and logs it unless the same line was logged in the last minute.

        `kind` and `subject` name the request and begin the log line. Subjects with the same `line` share the limit of
        one line a minute. With `at_once`, the first failure is already a warning.
        """
        key = kind, subject
        before = self._failing.get(key)
        if before is None:
            before = Problem(f"{kind} {subject}", error, 0, datetime.now(UTC), is_lasting=False)
        failures = before.failures + 1
        problem = replace(before, error=error, failures=failures, is_lasting=is_lasting(error))
        self._failing[key] = problem
        is_warning = at_once or problem.failures >= FAILURES_OF_A_PROBLEM
        lines = self._warnings if is_warning else self._first_lines
        now = self._clock()
        rare = lines.of((kind, subject if line is None else line), now)
        if not rare.is_due(now):
            return
        is_ours = isinstance(error, RocketMQError)
        text = f"{error if is_ours else f'{type(error).__name__}: {error}'}{rare.left_out()}"
        if is_warning:
            self._warned.add(key)
            times = "" if problem.failures == 1 else f" {problem.failures} times in a row"
            traceback = None if is_ours else error
            self._log.warning("%s failed%s, and is tried again: %s", problem.work, times, text, exc_info=traceback)
        else:
            self._log.info("%s failed, and is tried again: %s", problem.work, text)

    def passed(self, kind: str, subject: str) -> None:
        if not self._failing:
            return
        problem = self._failing.pop((kind, subject), None)
        if problem is not None and (kind, subject) in self._warned:
            self._warned.remove((kind, subject))
            self._log.info("%s works again, after %d failures", problem.work, problem.failures)

    def keep(self, kind: str, subjects: Collection[str]) -> None:
        if self._failing:
            kept = frozenset(subjects)
            for key in [key for key in self._failing if key[0] == kind and key[1] not in kept]:
                self.forget(*key)

    def forget(self, kind: str, subject: str) -> None:
        self._failing.pop((kind, subject), None)
        self._warned.discard((kind, subject))
