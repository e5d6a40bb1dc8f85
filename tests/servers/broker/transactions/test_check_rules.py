"""The verdict about a half message without an end, by its age, its immunity and its checks."""

import pytest

from pyrmq_core.servers.broker.transactions.check_rules import CheckRules, Verdict
from tests.servers.broker.transactions.halves import BORN_MS, half

RULES = CheckRules(timeout_ms=6000, most_checks=15, kept_ms=72 * 3_600_000)
CHECK, POSTPONE, WAIT, DISCARD = Verdict.CHECK, Verdict.POSTPONE, Verdict.WAIT, Verdict.DISCARD
IMMUNE = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TIMES = "TRANSACTION_CHECK_TIMES"
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("age_ms", "properties", "verdict"),
    [
        (0, {}, WAIT),
        (6000, {}, WAIT),
        (6001, {}, CHECK),
        (-1, {}, CHECK),  # the producer's clock is ahead: there is no age to wait for
        (6001, {TIMES: "14"}, CHECK),
        (6001, {TIMES: "15"}, DISCARD),
        (0, {TIMES: "15"}, DISCARD),
        (6001, {TIMES: "many"}, CHECK),
        (72 * 3_600_000, {}, CHECK),
        (72 * 3_600_000 + 1, {}, DISCARD),
        (60_000, {IMMUNE: "60"}, POSTPONE),
        (60_001, {IMMUNE: "60"}, CHECK),
        (-5000, {IMMUNE: "60"}, POSTPONE),
        (-2 * HOUR_MS, {IMMUNE: "60"}, CHECK),  # stored again until then, by each pass
        (HOUR_MS, {IMMUNE: "10800"}, POSTPONE),
        (2 * HOUR_MS, {IMMUNE: "10800"}, CHECK),
        (1000, {IMMUNE: "1"}, POSTPONE),
        (1001, {IMMUNE: "1"}, CHECK),  # shorter than transactionTimeOut counts here, not for a late end
        (6000, {IMMUNE: "soon"}, POSTPONE),
        (6001, {IMMUNE: "soon"}, CHECK),
        (6000, {IMMUNE: "-1"}, POSTPONE),
        (6001, {IMMUNE: "-1"}, CHECK),
        (1000, {IMMUNE: "60", TIMES: "15"}, DISCARD),
    ],
)
def test_the_verdict(age_ms: int, properties: dict[str, str], verdict: Verdict) -> None:
    now_ms = BORN_MS + age_ms
    assert RULES.judge(half(properties, stored_ms=now_ms - 1), now_ms, now_ms) is verdict


def test_one_that_was_stored_during_the_pass_waits_for_the_next() -> None:
    now_ms = BORN_MS + 100_000
    assert RULES.judge(half(stored_ms=now_ms), now_ms, now_ms) is WAIT
    assert RULES.judge(half(stored_ms=now_ms - 1), now_ms, now_ms) is CHECK


@pytest.mark.parametrize(
    ("age_ms", "immunity", "late"),
    [
        (10**9, "", False),
        (60_000, "60", False),
        (60_001, "60", True),
        (6000, "1", False),
        (6001, "1", True),
        (6001, "x", True),
    ],
)
def test_an_end_after_the_immunity_is_late(age_ms: int, immunity: str, late: bool) -> None:
    message = half({IMMUNE: immunity} if immunity else {})
    assert RULES.is_end_late(message, BORN_MS + age_ms) is late
