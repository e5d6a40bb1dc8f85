"""The options of a send: its target, the mode that decides what may be retried, and its producer's settings.

A target is any queue, one given queue, or the queue of a key; only a send to any queue moves to another broker.
Names and defaults of client/producer/DefaultMQProducer.java and client/impl/CommunicationMode.java.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from pyrmq_core.client.arguments import queue_of, seconds_of, whole_number
from pyrmq_core.model import Message, MessageQueue
from pyrmq_core.protocol.messages.names import check_topic
from pyrmq_core.protocol.messages.namespaces import with_namespace


@dataclass(frozen=True, slots=True)
class AnyQueue:
    """The topic's queues in turn, or `first` to begin with; a failed try moves to another broker.

    With `keep`, a window sends the payloads of one target one after another, each to the queue where the last one was
    stored: they stay in one queue in their order, unless its broker fails.
    """

    first: MessageQueue | None = None
    keep: bool = False


@dataclass(frozen=True, slots=True)
class ThisQueue:
    """A given queue. A send has one try, as Java's `send(msg, mq)`; with `wait` it waits for the queue's broker."""

    queue: MessageQueue
    wait: bool = False


@dataclass(frozen=True, slots=True)
class KeyedQueue:
    """The queue of a sharding key. A send waits for its broker while there is time; no other queue takes its place.

    With `queues` the choice is fixed to the publish list the caller saw first, however routes change meanwhile; when
    the broker refuses that queue, since the topic does not have it any more, the key's queue of the new route is taken.
    """

    sharding_key: str
    queues: tuple[MessageQueue, ...] = ()


Target = AnyQueue | ThisQueue | KeyedQueue

ANY_QUEUE: Final = AnyQueue()


def waits_for_broker(to: Target) -> bool:
    """Returns whether a send waits for the broker of its queue, without a limit of tries."""
    return isinstance(to, KeyedQueue) or (isinstance(to, ThisQueue) and to.wait)


def target_of(message: Message, queue: MessageQueue | None) -> Target:
    """Returns the given queue, otherwise the sharding key's, otherwise any; raises `InvalidArgument` for no queue."""
    if queue is not None:
        return ThisQueue(queue_of(queue))
    return ANY_QUEUE if message.sharding_key is None else KeyedQueue(message.sharding_key)


class CommunicationMode(enum.Enum):
    """A send's mode, which decides what may be retried."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"


# A member of an enum costs more than a call to look up.
SYNC: Final = CommunicationMode.SYNC
ASYNC: Final = CommunicationMode.ASYNC


@dataclass(frozen=True, kw_only=True)
class SendSettings:
    """The settings that one send depends on; RocketMQ's names and defaults, seconds for times."""

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
        """The group as brokers know it, with the namespace in front."""
        return with_namespace(self.group, self.namespace)

    def tries_allowed(self, mode: CommunicationMode) -> int:
        """Returns the number of tries, with the first one."""
        if mode is SYNC:
            return 1 + self.retry_times_when_send_failed
        return 1 + self.retry_times_when_send_async_failed if mode is ASYNC else 1
