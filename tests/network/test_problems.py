"""`Problems`: which failures in a row are logged, at which level and how often, and which are reported."""

from __future__ import annotations

import logging

import pytest

from pyrmq_core import NoNameServer
from pyrmq_core.network.problems import Problems, is_lasting
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import refusal
from pyrmq_core.protocol.framing.header_requests import response_error

BEAT = "the heartbeat to"
LOG = logging.getLogger("problems under test")


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def problems(clock: Clock, caplog: pytest.LogCaptureFixture) -> Problems:
    caplog.set_level(logging.INFO)
    return Problems(LOG, clock=clock)


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


def test_the_second_failure_in_a_row_is_a_warning_that_comes_again_after_a_minute(
    problems: Problems, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    error = NoNameServer("no NameServer answered; check the addresses")
    problems.failed(BEAT, "a:1", error)
    assert levels(caplog) == ["INFO"]
    assert list(problems.present) == []
    for _ in range(60):
        problems.failed(BEAT, "a:1", error)
        clock.now += 1
    assert levels(caplog) == ["INFO", "WARNING"]
    assert caplog.messages[1] == (
        "the heartbeat to a:1 failed 2 times in a row, and is tried again: no NameServer answered; check the addresses"
    )
    problems.failed(BEAT, "a:1", error)
    assert levels(caplog) == ["INFO", "WARNING", "WARNING"]
    assert "failed 62 times in a row" in caplog.messages[2]
    assert caplog.messages[2].endswith("(59 more since the last such line)")
    (problem,) = problems.present
    assert (problem.work, problem.error, problem.failures) == ("the heartbeat to a:1", error, 62)
    problems.passed(BEAT, "a:1")
    assert list(problems.present) == []
    assert (levels(caplog)[3], caplog.messages[3]) == ("INFO", "the heartbeat to a:1 works again, after 62 failures")


def test_a_success_between_failures_starts_the_count_anew(problems: Problems, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10):
        problems.failed(BEAT, "a:1", NoNameServer("none"))
        problems.passed(BEAT, "a:1")
    assert levels(caplog) == ["INFO"]


def test_subjects_have_lines_of_their_own_unless_they_share_one(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        for address in ("a:1", "b:1"):
            problems.failed(BEAT, address, NoNameServer("none"))
        for number in range(8):
            problems.failed("pulling", f"orders/{number}", NoNameServer("none"), line="orders")
    assert sorted(levels(caplog)) == ["INFO"] * 3 + ["WARNING"] * 3
    assert len(problems.present) == 10


def test_a_failure_that_loses_something_is_a_warning_at_once(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.failed("storing offsets at", "broker-a", NoNameServer("none"), at_once=True)
    assert levels(caplog) == ["WARNING"]
    assert caplog.messages == ["storing offsets at broker-a failed, and is tried again: none"]


def test_a_defect_has_its_traceback(problems: Problems, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        try:
            raise LookupError("a strategy of the user's own")
        except LookupError as error:
            problems.failed("dividing the queues of", "orders", error)
    assert "LookupError: a strategy of the user's own" in caplog.messages[1]
    assert caplog.records[1].exc_info


def test_requests_that_are_not_tried_any_more_are_forgotten(problems: Problems) -> None:
    for address in ("a:1", "b:1"):
        for _ in range(2):
            problems.failed(BEAT, address, NoNameServer("none"))
            problems.failed("pulling", address, NoNameServer("none"))
    problems.keep(BEAT, ["b:1"])
    problems.forget("pulling", "b:1")
    assert [problem.work for problem in problems.present] == ["pulling a:1", "the heartbeat to b:1"]


@pytest.mark.parametrize(
    ("code", "remark", "lasting"),
    [
        (ResponseCode.NO_PERMISSION, "User bob has no permission", True),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [g] does not exist", True),
        (ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: Check signature failed", True),
        (ResponseCode.SYSTEM_ERROR, "out of memory", False),
        (ResponseCode.SYSTEM_BUSY, "too many requests", False),
    ],
)
def test_a_refusal_lasts_if_a_person_has_to_change_something(
    problems: Problems, code: ResponseCode, remark: str, lasting: bool
) -> None:
    error = response_error(refusal(code, remark), RequestCode.HEART_BEAT, "a:1")
    assert is_lasting(error) is lasting
    for _ in range(2):
        problems.failed(BEAT, "a:1", error)
    (problem,) = problems.present
    assert problem.is_lasting is lasting
    assert str(problem).startswith("the heartbeat to a:1 failed 2 times in a row since 20")
    assert remark in str(problem)
