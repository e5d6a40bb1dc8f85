"""Decides about an undecided half message by its age and the number of its checks.

A half message may have an immunity: an age up to which its producer wants no check (CHECK_IMMUNITY_TIME_IN_SECONDS).
Three things differ from Java. Java counts as checks also those that reached no producer, and the times that an immune
half message was stored again. So it may drop a message before any check. Here an immunity of more than an hour is cut
to an hour. Source: broker/transaction/queue/TransactionalMessageServiceImpl.java (check), TransactionalMessageUtil.java
(getImmunityTime), 5.4.0.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from pyrmq_core.protocol.java.integers import parse_long
from pyrmq_core.servers.broker.transactions.half_messages import HalfMessage

# The longest immunity that a producer can choose: each pass of checks stores an immune half message again.
LONGEST_POSTPONED_MS: Final = 3_600_000


class Verdict(enum.Enum):
    """The decision about an undecided half message in a pass of checks."""

    CHECK = enum.auto()  # a check is sent to a producer
    HOLD = enum.auto()  # a check is due, but no producer of the group can be reached
    POSTPONE = enum.auto()  # the half message is immune: it is stored again at the queue's end
    WAIT = enum.auto()  # the half message is young, and so are all after it
    DISCARD = enum.auto()  # the half message was checked too often, or is too old


@dataclass(frozen=True, slots=True)
class CheckRules:
    """The settings for the checks of undecided half messages.

    A half message is checked for the first time at the age of `timeout_ms`, at most `most_checks` times, and discarded
    at the age of `kept_ms`.
    """

    timeout_ms: int
    most_checks: int
    kept_ms: int

    def judge(
        self, half: HalfMessage, now_ms: int, started_ms: int, *, was_missed: bool = False, is_reachable: bool = True
    ) -> Verdict:
        """Decides about an undecided half message in a pass of checks that started at `started_ms`.

        The message's age is the time since its born time, which the producer set. `was_missed` is True if the last
        check reached no producer, `is_reachable` if the next check can reach one.
        """
        checks, age_ms = half.checks, now_ms - half.record.born_timestamp_ms
        if checks is not None:
            checks -= was_missed
        if (checks is not None and checks >= self.most_checks) or age_ms > self.kept_ms:
            return Verdict.DISCARD
        if half.record.store_timestamp_ms >= started_ms:
            return Verdict.WAIT
        due = Verdict.CHECK if is_reachable else Verdict.HOLD
        if half.immunity is None:
            return Verdict.WAIT if 0 <= age_ms <= self.timeout_ms else due
        postponed_ms = min(self.immunity_ms(half.immunity), LONGEST_POSTPONED_MS)
        return Verdict.POSTPONE if -LONGEST_POSTPONED_MS <= age_ms <= postponed_ms else due

    def immunity_ms(self, text: str) -> int:
        seconds = _seconds(text)
        return self.timeout_ms if seconds is None else seconds * 1000

    def is_end_late(self, half: HalfMessage, now_ms: int) -> bool:
        """Returns True if a commit or rollback comes too late, because the half message's first check is due.

        This is for commits that answer no check. A half message without an immunity has no such limit.
        """
        if not half.immunity:
            return False
        return now_ms - half.record.born_timestamp_ms > max(self.immunity_ms(half.immunity), self.timeout_ms)


def _seconds(text: str) -> int | None:
    try:
        seconds = parse_long(text)
    except ValueError:
        return None
    return None if seconds == -1 else seconds
