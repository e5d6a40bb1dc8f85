"""Where a send may go: any queue, one given queue, or the queue of a key. Only the first moves to another broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
    """One queue and no other; one try, as Java's `send(msg, mq)`."""

    queue: MessageQueue


@dataclass(frozen=True, slots=True)
class KeyedQueue:
    """The queue of a sharding key: it never moves, its broker is waited for while there is time.

    With `queues` the choice is fixed to the publish list the caller saw first, however routes change meanwhile.
    """

    sharding_key: str
    queues: tuple[MessageQueue, ...] = ()


Target = AnyQueue | ThisQueue | KeyedQueue

ANY_QUEUE: Final = AnyQueue()


def target_of(message: Message, queue: MessageQueue | None) -> Target:
    """The given queue, else the one of the message's sharding key, else any."""
    if queue is not None:
        return ThisQueue(queue)
    return ANY_QUEUE if message.sharding_key is None else KeyedQueue(message.sharding_key)
