"""The meaning of a failed try: outcome, whether to go on, how long the next one may take. A table and its rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.client.producer.send.retry_policy import (
    Next,
    attempt_seconds,
    is_refused_for_good,
    is_retried,
    leaving_seconds,
    next_step,
    outcome_of,
    refuses_queue,
    send_failed,
    worst,
)
from pyrmq_core.client.producer.send.send_options import AnyQueue, CommunicationMode, KeyedQueue, Target, ThisQueue
from pyrmq_core.errors import (
    Attempt,
    BodyError,
    BrokerNotFound,
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    FrameError,
    InvalidArgument,
    InvalidState,
    NoRoute,
    Outcome,
    ResponseError,
    RocketMQError,
    SendFailed,
)
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import ResponseCode

ANY, KEYED, THIS = AnyQueue(), KeyedQueue("k"), ThisQueue(MessageQueue("T", "a", 0))
WAITED_FOR = ThisQueue(MessageQueue("T", "a", 0), wait=True)
NOT, PERHAPS = Outcome.NOT_STORED, Outcome.PERHAPS_STORED


def refused(code: int) -> ResponseError:
    return ResponseError("refused", code=code)


ERRORS: list[tuple[RocketMQError, Outcome, bool]] = [
    # error, what the broker has, whether another broker may be tried
    (ConnectFailed("x", address="a:1"), NOT, True),
    (ConnectionClosed("x", address="a:1", request_left=False), NOT, True),
    (ConnectionClosed("x", address="a:1", request_left=True), PERHAPS, True),
    (CallTimeout("x", address="a:1", request_left=False), NOT, True),
    (CallTimeout("x", address="a:1", request_left=True), PERHAPS, True),
    (BrokerNotFound("x", broker_name="a"), NOT, True),
    (FrameError("x"), PERHAPS, True),
    (BodyError("x"), PERHAPS, True),
    # DefaultMQProducer.java, retryResponseCodes of 5.3.3
    (refused(ResponseCode.SYSTEM_ERROR), PERHAPS, True),
    (refused(ResponseCode.SYSTEM_BUSY), NOT, True),
    (refused(ResponseCode.SERVICE_NOT_AVAILABLE), NOT, True),
    # 4.9 refuses signatures so, before it looks at the request
    (ResponseError("x", code=1, remark="org.apache.rocketmq.acl.common.AclException: No accessKey is"), NOT, True),
    # 4.9 refuses a queue so before it stores, which 5.x calls an INVALID_PARAMETER: the route is old
    (ResponseError("x", code=1, remark="request queueId[9] is illegal, TopicConfig ..."), NOT, True),
    (ResponseError("x", code=29, remark="request queueId[9] is illegal, TopicConfig ..."), NOT, True),
    (refused(ResponseCode.NO_PERMISSION), NOT, True),
    (refused(ResponseCode.TOPIC_NOT_EXIST), NOT, True),
    (refused(ResponseCode.NO_BUYER_ID), NOT, True),
    (refused(ResponseCode.NOT_IN_CURRENT_UNIT), NOT, True),
    (refused(ResponseCode.GO_AWAY), NOT, True),
    (refused(ResponseCode.MESSAGE_ILLEGAL), NOT, False),
    (refused(ResponseCode.INVALID_PARAMETER), NOT, False),
    (refused(ResponseCode.VERSION_NOT_SUPPORTED), NOT, False),
    (refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), NOT, False),
    (refused(4711), PERHAPS, False),  # its meaning is unknown
    (InvalidArgument("x"), NOT, False),
    (InvalidState("x"), NOT, False),
    (NoRoute("x", topic="T"), NOT, False),
]

STAYING = {
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
}
STAYING_REMARKS = ("org.apache.rocketmq.acl",)


@pytest.mark.parametrize(("error", "outcome", "elsewhere"), ERRORS)
def test_what_each_error_means(error: RocketMQError, outcome: Outcome, elsewhere: bool) -> None:
    assert outcome_of(error) is outcome
    assert is_retried(error, ANY, 1, 3) is elsewhere
    assert is_retried(error, THIS, 1, 3) is False


@pytest.mark.parametrize(("error", "outcome", "elsewhere"), ERRORS)
def test_a_keys_queue_is_waited_for_only_where_waiting_can_help(
    error: RocketMQError, outcome: Outcome, elsewhere: bool
) -> None:
    """Another broker may take what this one never will: a permission, or a topic that it does not have."""
    stays = isinstance(error, ResponseError) and (error.code in STAYING or error.remark.startswith(STAYING_REMARKS))
    assert is_retried(error, KEYED, 1, 3) is (elsewhere and not stays)
    assert is_retried(error, WAITED_FOR, 1, 3) is (elsewhere and not stays and not refuses_queue(error))


@pytest.mark.parametrize("code", [ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR])
def test_a_refused_queue_is_an_old_route_and_neither_content_nor_a_try(code: int) -> None:
    """There is no limit of tries: the route is looked up again, and a deadline ends it."""
    refusal = ResponseError("x", code=code, remark="request queueId[9] is illegal, TopicConfig ...")
    for target in (ANY, KEYED):
        for mode in (CommunicationMode.SYNC, CommunicationMode.ASYNC):
            assert is_retried(refusal, target, 50, 3, mode)
    assert not is_retried(refusal, THIS, 0, 3, CommunicationMode.ASYNC)
    failed = SendFailed("x", outcome=NOT, attempts=[])
    failed.__cause__ = refusal
    assert not is_refused_for_good(failed)
    failed.__cause__ = ResponseError("x", code=ResponseCode.INVALID_PARAMETER, remark="the topic's name")
    assert is_refused_for_good(failed)
    assert not refuses_queue(ResponseError("x", code=ResponseCode.MESSAGE_ILLEGAL, remark="request queueId[9]"))


@pytest.mark.parametrize(
    ("target", "tries", "expected"),
    [(ANY, 1, True), (ANY, 2, True), (ANY, 3, False), (KEYED, 3, True), (KEYED, 50, True), (THIS, 0, False)],
)
def test_how_often_each_target_is_tried(target: Target, tries: int, expected: bool) -> None:
    """Three tries over any queues; a key's queue is waited for while there is time; a given queue has one try."""
    assert is_retried(ConnectFailed("x", address="a:1"), target, tries, 3) is expected


def test_one_perhaps_makes_the_whole_send_perhaps() -> None:
    def tried(outcome: Outcome) -> Attempt:
        return Attempt("a", "a:1", 0.1, outcome, "why")

    assert worst([tried(NOT), tried(NOT)]) is NOT
    assert worst([tried(PERHAPS), tried(NOT)]) is PERHAPS
    assert worst([tried(Outcome.STORED), tried(NOT)]) is PERHAPS


@pytest.mark.parametrize(
    ("left", "per_attempt", "may_move", "expected"),
    [
        (3.0, None, True, 3.0),  # all the time, as in Java: a request that has left stays with its broker
        (3.0, None, False, 3.0),
        (3.0, 0.5, True, 0.5),
        (3.0, 0.5, False, 3.0),  # the same broker would only store it twice
        (0.2, 0.5, True, 0.2),
        (0.0, None, False, 0.05),  # the least that makes sense on a network
    ],
)
def test_how_long_a_try_waits_for_its_answer(
    left: float, per_attempt: float | None, may_move: bool, expected: float
) -> None:
    assert attempt_seconds(left, per_attempt, may_move=may_move) == pytest.approx(expected)


@given(st.floats(0, 1e6), st.none() | st.floats(0.001, 1e6), st.booleans())
def test_no_try_takes_more_than_is_left(left: float, per_attempt: float | None, may_move: bool) -> None:
    seconds = attempt_seconds(left, per_attempt, may_move=may_move)
    assert 0.05 <= seconds <= max(0.05, left)
    if per_attempt is not None and may_move:
        assert seconds <= max(0.05, per_attempt)


@pytest.mark.parametrize(
    ("left", "tries", "may_move", "expected"),
    [
        (3.0, 3, True, 1.0),  # another broker can take it, and nothing is stored yet
        (2.0, 2, True, 1.0),
        (3.0, 3, False, 3.0),
        (2.0, -4, False, 2.0),  # a key's queue has no number of tries
        (0.0, 3, True, 0.05),
    ],
)
def test_how_long_a_request_may_take_to_leave(left: float, tries: int, may_move: bool, expected: float) -> None:
    assert leaving_seconds(left, tries, may_move=may_move) == pytest.approx(expected)


def test_the_text_reports_every_try_in_one_line() -> None:
    attempts = [
        Attempt("broker-a", "10.0.0.1:10911", 1.0, PERHAPS, "10.0.0.1:10911 did not answer SEND_MESSAGE_V2 (310)"),
        Attempt("broker-b", "10.0.0.2:10911", 0.25, NOT, "answered with SYSTEM_BUSY (2)"),
    ]
    error = send_failed("orders", attempts, 1.25, 1)
    assert error.outcome is PERHAPS
    assert error.attempts == tuple(attempts)
    assert str(error) == (
        "Send [2] times, still failed, cost [1250]ms, Topic: orders, BrokersSent: [broker-a, broker-b]: "
        "the message perhaps stored, sending again may store a second copy. "
        "[1] broker-a (10.0.0.1:10911) after 1.00 s: 10.0.0.1:10911 did not answer SEND_MESSAGE_V2 (310) "
        "[perhaps stored]; "
        "[2] broker-b (10.0.0.2:10911) after 0.25 s: answered with SYSTEM_BUSY (2) [not stored]"
    )


def test_a_batch_says_how_many_and_that_it_is_safe() -> None:
    error = send_failed("orders", [Attempt("a", "", 0.0, NOT, "why")], 0.1, 7)
    assert "7 messages not stored, it is safe to send again. [1] a after 0.00 s: why [not stored]" in str(error)


def test_a_failure_that_repeats_is_reported_once() -> None:
    """A wrong key is refused by each broker in the same words."""
    attempt, other = (Attempt(name, f"{name}:1", 0.5, NOT, f"{name} answered NO_PERMISSION") for name in "ab")
    text = str(send_failed("orders", [attempt, other, attempt], 1.0, 1))
    assert text.endswith(
        "[1, 3] a (a:1) after 0.50 s: a answered NO_PERMISSION [not stored]; "
        "[2] b (b:1) after 0.50 s: b answered NO_PERMISSION [not stored]"
    )
    assert "BrokersSent: [a, b, a]" in text


NO_QUEUE = ResponseError("no", code=ResponseCode.INVALID_PARAMETER, remark="request queueId[7] is illegal")
SILENT = CallTimeout("silent", address="a:1", request_left=True)


@pytest.mark.parametrize(
    ("error", "target", "mode", "tries_made", "seconds", "step"),
    [
        (NO_QUEUE, THIS, CommunicationMode.SYNC, 0, 1.0, Next.ASK_ROUTE),
        (NO_QUEUE, THIS, CommunicationMode.SYNC, 0, 0.0, Next.ASK_ROUTE),
        (NO_QUEUE, ANY, CommunicationMode.SYNC, 0, 1.0, Next.TRY),
        (SILENT, ANY, CommunicationMode.SYNC, 1, 1.0, Next.TRY),
        (SILENT, ANY, CommunicationMode.SYNC, 1, 0.0, Next.END),
        (SILENT, ANY, CommunicationMode.SYNC, 3, 1.0, Next.END),
        (SILENT, KEYED, CommunicationMode.SYNC, 9, 1.0, Next.TRY),
        (SILENT, ANY, CommunicationMode.ONEWAY, 0, 1.0, Next.END),
        (SILENT, THIS, CommunicationMode.SYNC, 1, 1.0, Next.END),
        (SILENT, THIS, CommunicationMode.ASYNC, 1, 1.0, Next.TRY),
        (InvalidState("closed"), ANY, CommunicationMode.SYNC, 1, 1.0, Next.END),
    ],
)
def test_the_next_step_is_looked_up_in_one_table(
    error: RocketMQError, target: Target, mode: CommunicationMode, tries_made: int, seconds: float, step: Next
) -> None:
    assert next_step(error, target, mode, tries_made, 3, seconds) is step
