"""The targets of a send: any queue, one given queue, or the queue of a key. Only the first moves to another broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.client.arguments import queue_of
from pyrmq_core.model import Message, MessageQueue


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
    """One queue and no other; one try, as Java's `send(msg, mq)`. With `wait` its broker is waited for."""

    queue: MessageQueue
    wait: bool = False


@dataclass(frozen=True, slots=True)
class KeyedQueue:
    """The queue of a sharding key: its broker is waited for while there is time, and no other one takes its place.

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
