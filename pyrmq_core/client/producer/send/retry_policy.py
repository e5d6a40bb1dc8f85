"""Decides after a failed try of a send what the broker has stored, and whether to try again. Pure.

Sources: client/impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl), client/producer/DefaultMQProducer.java
(retryResponseCodes), 5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from pyrmq_core.client.producer.send.send_options import AnyQueue, CommunicationMode, KeyedQueue, Target, ThisQueue
from pyrmq_core.errors import (
    Attempt,
    BrokerNotFound,
    NetworkError,
    Outcome,
    PeerError,
    QueueNotFound,
    ResponseError,
    RocketMQError,
    SendFailed,
)
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import PASSING_CODES, ResponseCode
from pyrmq_core.protocol.framing.header_requests import ACL_REFUSAL

RETRY_RESPONSE_CODES: Final = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)

# Refusals after which a send waits and tries again. SYSTEM_ERROR may mean a full disk. Any other refusal, such as a
# missing permission or topic, lasts until an operator acts.
WAITED_OUT: Final = PASSING_CODES | {ResponseCode.SYSTEM_ERROR}
# How the remark begins if a broker refuses a queue that the topic lacks. It refuses before it stores: 5.x with
# INVALID_PARAMETER, 4.9 with SYSTEM_ERROR (AbstractSendMessageProcessor.java, msgCheck).
WRONG_QUEUE: Final = "request queueId["
WRONG_QUEUE_CODES: Final = (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)

# Codes by which a broker refuses before it stores. SYSTEM_ERROR may mean an exception before or after storing.
REFUSED_BEFORE_STORING: Final = frozenset(ResponseCode) - {ResponseCode.SYSTEM_ERROR}

# Refusals of the message or of its sender, which no other queue and no later try would accept.
REFUSED_FOR_GOOD: Final = frozenset(
    (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_PERMISSION, ResponseCode.INVALID_PARAMETER)
)

MIN_ATTEMPT_SECONDS: Final = 0.05


def outcome_of(error: RocketMQError) -> Outcome:
    if isinstance(error, NetworkError):
        return Outcome.PERHAPS_STORED if error.request_left else Outcome.NOT_STORED
    if isinstance(error, ResponseError):
        before = error.code in REFUSED_BEFORE_STORING or error.remark.startswith(ACL_REFUSAL)
        refused = before or refuses_queue(error)
        return Outcome.NOT_STORED if refused else Outcome.PERHAPS_STORED
    if isinstance(error, PeerError):
        return Outcome.PERHAPS_STORED
    return Outcome.NOT_STORED


def refuses_queue(error: BaseException | None) -> bool:
    """Returns whether a broker refused a queue because its topic does not have it: the client's route was old."""
    if not isinstance(error, ResponseError):
        return False
    return error.code in WRONG_QUEUE_CODES and error.remark.startswith(WRONG_QUEUE)


def is_refused_for_good(error: SendFailed) -> bool:
    """Returns whether a broker stored nothing, and would always refuse this message or its sender."""
    cause = error.__cause__
    refused = isinstance(cause, ResponseError) and cause.code in REFUSED_FOR_GOOD and not refuses_queue(cause)
    return refused and error.outcome is Outcome.NOT_STORED


def worst(attempts: Sequence[Attempt]) -> Outcome:
    perhaps = any(attempt.outcome is not Outcome.NOT_STORED for attempt in attempts)
    return Outcome.PERHAPS_STORED if perhaps else Outcome.NOT_STORED


class Next(Enum):
    TRY = "another try, which may wait for the broker first"
    ASK_ROUTE = "the topic's route is asked for, and the send ends with the queues that it names"
    END = "the send ends"


def is_free_try(error: RocketMQError, target: Target) -> bool:
    """Returns whether a failed try is not counted, because it reached no broker and its `target` waits for a broker."""
    if not isinstance(target, AnyQueue) or not target.wait or outcome_of(error) is not Outcome.NOT_STORED:
        return False
    if isinstance(error, ResponseError):
        return error.code == ResponseCode.GO_AWAY
    return isinstance(error, NetworkError | BrokerNotFound)


def next_step(
    error: RocketMQError, target: Target, mode: CommunicationMode, tries_made: int, tries_allowed: int, seconds: float
) -> Next:
    """Decides the next step after a failed try. `seconds` is the rest of the send's time.

    error                                 target                  next
    the broker does not have the queue    named by the caller     ASK_ROUTE
    an error that `is_retried`, in time   any                     TRY
    any other                             any                     END
    """
    if refuses_queue(error) and isinstance(target, ThisQueue):
        return Next.ASK_ROUTE
    if mode is CommunicationMode.ONEWAY or seconds < MIN_ATTEMPT_SECONDS:
        return Next.END
    return Next.TRY if is_retried(error, target, tries_made, tries_allowed, mode) else Next.END


def is_retried(
    error: RocketMQError,
    target: Target,
    attempts_made: int,
    attempts_allowed: int,
    mode: CommunicationMode = CommunicationMode.SYNC,
) -> bool:
    """Returns whether another try may follow a failed one, if time is left.

    AnyQueue                  up to `attempts_allowed` tries. In mode ASYNC a broker's refusal ends the send
    KeyedQueue                any number, while the broker cannot be reached or refuses with a code of WAITED_OUT
    ThisQueue with `wait`     as for KeyedQueue
    ThisQueue without `wait`  only in mode ASYNC, after a `NetworkError`, up to `attempts_allowed` tries

    A try after such a refusal may store the message twice. If the broker does not have the queue, because the route was
    old, the next try uses another queue, except for a ThisQueue.
    """
    if refuses_queue(error):
        return not isinstance(target, ThisQueue)
    if isinstance(error, ResponseError) and error.code not in RETRY_RESPONSE_CODES:
        return False
    if not isinstance(error, NetworkError | PeerError | BrokerNotFound):
        return False
    asynchronous = mode is CommunicationMode.ASYNC
    match target:
        case KeyedQueue():
            return not isinstance(error, ResponseError) or _may_pass(error)
        case ThisQueue(wait=True):
            return not isinstance(error, ResponseError) or _may_pass(error)
        case ThisQueue():
            return asynchronous and isinstance(error, NetworkError) and attempts_made < attempts_allowed
        case AnyQueue():
            return attempts_made < attempts_allowed and not (asynchronous and isinstance(error, ResponseError))


def _may_pass(error: ResponseError) -> bool:
    return error.code in WAITED_OUT and not error.remark.startswith(ACL_REFUSAL)


def attempt_seconds(time_left: float, per_attempt: float | None, *, may_move: bool) -> float:
    """Returns the seconds for which a try waits for its answer: all remaining seconds, as in Java.

    `per_attempt` limits only a try after which the send `may_move` to another broker. A slow broker stores the request
    later, and a second request would store a second copy.
    """
    seconds = time_left if per_attempt is None or not may_move or per_attempt > time_left else per_attempt
    return seconds if seconds > MIN_ATTEMPT_SECONDS else MIN_ATTEMPT_SECONDS


def leaving_seconds(time_left: float, attempts_left: int, *, may_move: bool) -> float:
    """Returns the seconds within which a request has to be written to the connection.

    These are the remaining seconds. If the send `may_move` to another broker, they are divided evenly among the
    `attempts_left`. Another broker may then be tried, since a request that was not written stores nothing.
    """
    return max(MIN_ATTEMPT_SECONDS, time_left / attempts_left if may_move else time_left)


def send_failed(topic: str, attempts: Sequence[Attempt], seconds: float, count: int) -> SendFailed:
    """Returns the error of a failed send: one line with tries, time, brokers, reasons, outcome and advice."""
    outcome = worst(attempts)
    what = f"{count} messages" if count > 1 else "the message"
    advice = {
        Outcome.NOT_STORED: "it is safe to send again",
        Outcome.PERHAPS_STORED: "sending again may store a second copy",
        Outcome.STORED: "do not send again",
    }[outcome]
    state = "; ".join(_listed_once(attempts))
    return SendFailed(
        f"Send [{len(attempts)}] times, still failed, cost [{seconds * 1000:.0f}]ms, Topic: {topic}, "
        f"BrokersSent: [{', '.join(attempt.broker_name for attempt in attempts)}]: "
        f"{what} {outcome.value}, {advice}. {state}",
        outcome=outcome,
        attempts=attempts,
    )


def no_such_queue(queue: MessageQueue, queues: Sequence[MessageQueue], failed: SendFailed) -> QueueNotFound:
    there = sorted(other.queue_id for other in queues if other.broker_name == queue.broker_name)
    has = f"it has {there[0]} to {there[-1]} there" if there else "it has none there to write to"
    return QueueNotFound(
        f"topic {queue.topic} has no queue {queue.queue_id} on {queue.broker_name}; by the route of this moment {has}: "
        f"name one of these, or let the producer choose. {failed}",
        outcome=failed.outcome,
        attempts=failed.attempts,
        queue=queue,
    )


def _listed_once(attempts: Sequence[Attempt]) -> Iterator[str]:
    numbers: dict[tuple[str, str, Outcome, str], list[int]] = {}
    for number, attempt in enumerate(attempts, 1):
        what = (attempt.broker_name, attempt.address, attempt.outcome, attempt.reason)
        numbers.setdefault(what, []).append(number)
    for tries in numbers.values():
        yield f"[{', '.join(map(str, tries))}] {attempts[tries[-1] - 1]}"
