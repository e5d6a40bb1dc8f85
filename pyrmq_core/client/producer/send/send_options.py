"""The options of a send (its target, its mode and its producer's settings), and its state while it runs.

A target is any queue, one given queue, or the queue of a key. After a failed try, only a send to any queue moves to
another broker. Names and defaults are those of client/producer/DefaultMQProducer.java and
client/impl/CommunicationMode.java.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Final

import trio

from pyrmq_core.client.arguments import queue_of, seconds_of, whole_number
from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.client.unique_ids import unique_id
from pyrmq_core.errors import Attempt, Outcome, RocketMQError
from pyrmq_core.model import Message, MessageQueue
from pyrmq_core.protocol.messages.batch_topic import record_properties
from pyrmq_core.protocol.messages.names import check_topic
from pyrmq_core.protocol.messages.namespaces import with_namespace
from pyrmq_core.protocol.messages.payload import Payload


@dataclass(frozen=True, slots=True)
class AnyQueue:
    """The topic's queues in turn, beginning with `first` if it is set. After a failed try another broker is used.

    `keep` is for a window, which then sends the payloads of one target one after another, each to the queue of the
    payload before it. So they stay in one queue in their order, unless its broker fails. With `wait`, a try that
    reached no broker is not counted, and the send waits for one of the topic's brokers.
    """

    first: MessageQueue | None = None
    keep: bool = False
    wait: bool = False


@dataclass(frozen=True, slots=True)
class ThisQueue:
    """A queue that the caller chose. A send to it has one try, like Java's `send(msg, mq)`.

    With `wait` the send is repeated until the queue's broker is reached, or its time is over.
    """

    queue: MessageQueue
    wait: bool = False


@dataclass(frozen=True, slots=True)
class KeyedQueue:
    """The queue of a sharding key, or, with `is_lite`, of the name of a lite topic.

    A send waits for the queue's broker while there is time, and uses no other queue. `queues` are the queues of the
    caller's first route, so that the key keeps its queue even if routes change. If the broker refuses that queue,
    since the topic no longer has it, the send uses the key's queue in the new route.
    """

    sharding_key: str
    queues: tuple[MessageQueue, ...] = ()
    is_lite: bool = False


Target = AnyQueue | ThisQueue | KeyedQueue

ANY_QUEUE: Final = AnyQueue()


def waits_for_broker(to: Target) -> bool:
    """Returns whether a send, while its broker is away, is repeated until its deadline, whatever its try limit."""
    return isinstance(to, KeyedQueue) or to.wait


def target_of(message: Message, queue: MessageQueue | None) -> Target:
    if queue is not None:
        return ThisQueue(queue_of(queue))
    if message.lite_topic is not None:
        return KeyedQueue(message.lite_topic, is_lite=True)
    return ANY_QUEUE if message.sharding_key is None else KeyedQueue(message.sharding_key)


class CommunicationMode(enum.Enum):
    """A send's mode, which decides which failures are retried."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"


# Looked up once, since access to a member of an enum costs more than a call.
SYNC: Final = CommunicationMode.SYNC
ASYNC: Final = CommunicationMode.ASYNC


@dataclass(frozen=True, kw_only=True)
class SendSettings:
    """The settings that one send depends on, with RocketMQ's names and defaults. Times are in seconds."""

    group: str = field(kw_only=False)
    namespace: str | None = None
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    timeout_per_attempt: float | None = None
    retry_another_broker_when_not_store_ok: bool = False
    create_topic_key: str = "TBW102"
    default_topic_queue_nums: int = 4
    start_detector_enable: bool = False

    def __post_init__(self) -> None:
        whole_number("retry_times_when_send_failed", self.retry_times_when_send_failed, 0)
        whole_number("retry_times_when_send_async_failed", self.retry_times_when_send_async_failed, 0)
        whole_number("default_topic_queue_nums", self.default_topic_queue_nums, 1)
        if self.timeout_per_attempt is not None:
            seconds_of("timeout_per_attempt", self.timeout_per_attempt)
        check_topic(self.create_topic_key)

    @property
    def producer_group(self) -> str:
        return with_namespace(self.group, self.namespace)

    def tries_allowed(self, mode: CommunicationMode) -> int:
        if mode is SYNC:
            return 1 + self.retry_times_when_send_failed
        return 1 + self.retry_times_when_send_async_failed if mode is ASYNC else 1


class SendState:
    """The state of one send: its parameters, its latest try and its ended tries. Only `Sender` changes it.

        fixed          payload, to, mode, tries_allowed, and timeout, which counts from started (trio's clock)
        latest try     queue, address, the request's code, and began
        ended tries    attempts, tries_left and last_broker_name
        stored         the receipt of a try that was stored, but not with SEND_OK
        refused        the last queue that its broker did not have, with the broker's answer

    These are the local variables of RocketMQ's `sendDefaultImpl`. It is a class with slots, since a frozen dataclass
    would cost each send more time than its queue selection.
    """

    __slots__ = (
        "_record_id",
        "address",
        "attempts",
        "began",
        "code",
        "last_broker_name",
        "mode",
        "payload",
        "queue",
        "refused",
        "started",
        "stored",
        "timeout",
        "to",
        "tries_allowed",
        "tries_left",
    )

    def __init__(
        self,
        payload: Payload,
        to: Target,
        timeout: float,
        tries_allowed: int,
        mode: CommunicationMode = CommunicationMode.SYNC,
        now: float | None = None,
    ) -> None:
        self.payload = payload
        self.to = to
        self.timeout = timeout
        self.tries_allowed = self.tries_left = tries_allowed
        self.mode = mode
        self.started = self.began = trio.current_time() if now is None else now
        self.attempts: tuple[Attempt, ...] = ()
        self.last_broker_name: str | None = None
        self.stored: Receipt | None = None
        self.queue: MessageQueue | None = None
        self.address = ""
        self.code = 0
        self.refused: tuple[MessageQueue, RocketMQError] | None = None
        self._record_id: str | None = None

    @property
    def tries_made(self) -> int:
        return self.tries_allowed - self.tries_left

    def seconds_left(self) -> float:
        return max(0.0, self.started + self.timeout - trio.current_time())

    def as_one_record(self) -> Payload:
        """Returns the payload with the request properties by which a batch topic stores its messages as one record.

        The properties are the same in every try of the send.
        """
        self._record_id = self._record_id or unique_id()
        return replace(self.payload, properties=record_properties(self.payload, self._record_id))

    def note(self, queue: MessageQueue, outcome: Outcome, reason: str) -> None:
        seconds = trio.current_time() - self.began
        self.attempts += (Attempt(queue.broker_name, self.address, seconds, outcome, reason),)
        self.last_broker_name = queue.broker_name
        self.tries_left -= 1

    def note_refused_queue(self, queue: MessageQueue, refusal: RocketMQError) -> None:
        """Records a queue that the broker refused. The try is not counted, since the client's route was old."""
        self.refused = queue, refusal
        self.last_broker_name = None
        self.tries_left += 1
