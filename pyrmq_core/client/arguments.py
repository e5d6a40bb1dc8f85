"""Checks of the arguments of public functions: first the type, then the range. Errors name the argument.

A call is checked in the caller's thread, so that a wrong argument does not fail later on the loop. Each check raises
`InvalidArgument`.
"""

from __future__ import annotations

import inspect
import math
import ssl
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import Message, MessageQueue
from pyrmq_core.protocol.shown_values import shown

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")


def seconds_of(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidArgument(f"{name}={shown(value)}: it is a number of seconds")
    if not 0 < value < math.inf:
        raise InvalidArgument(f"{name}={value:g}: it is a time in seconds, and has to be more than 0")
    return value


def first_millisecond(when: datetime) -> int:
    """Converts a time to milliseconds since 1970, rounded up. Raises `InvalidArgument` for a time without a zone.

    It is rounded up, so that a message stored in the resulting millisecond is not older than `when`.
    """
    if getattr(when, "tzinfo", None) is None:
        raise InvalidArgument(f"{shown(when)} has no time zone; write datetime(..., tzinfo=UTC)")
    return -((EPOCH - when) // timedelta(milliseconds=1))


def whole_number(name: str, value: object, least: int, most: int = MAX_INT) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name}={shown(value)}: it is a whole number")
    if not least <= value <= most:
        raise InvalidArgument(f"{name}={value}: {least} to {most} are possible")
    return value


def queue_of(queue: object) -> MessageQueue:
    """Returns `queue`, or raises `InvalidArgument` if it is no valid `MessageQueue`. The id -1 means any queue."""
    if not isinstance(queue, MessageQueue):
        raise InvalidArgument(f"queue={shown(queue)}: it is a MessageQueue(topic, broker_name, queue_id)")
    for name in (queue.topic, queue.broker_name):
        text_of("a queue's topic and broker_name", name)
    whole_number("queue_id", queue.queue_id, -1)
    return queue


def chosen_by(select: object, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    if not callable(select):
        raise InvalidArgument(f"select={shown(select)}: it is a function of the queues and the message")
    if inspect.iscoroutinefunction(select):
        raise InvalidArgument(f"select={shown(select)}: it is an async function, and a plain one is called")
    return queue_of(select(queues, message))


def context_of(tls: object) -> ssl.SSLContext | None:
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise InvalidArgument(f"tls={shown(tls)}: it is an ssl.SSLContext, such as ssl.create_default_context()")
    return tls


def instance_of(name: str, value: object, kind: type[T], words: str) -> T:
    if not isinstance(value, kind):
        raise InvalidArgument(f"{name}={shown(value)}: it is {words}")
    return value


def tuple_of(name: str, values: Iterable[T], words: str) -> tuple[T, ...]:
    """Returns the values as a tuple. Raises `InvalidArgument` if they cannot be iterated.

    In the error's text, `name` is the argument's name, and `words` says what its values are.
    """
    if not isinstance(values, Iterable):
        raise InvalidArgument(f"{name}={shown(values)}: it is a list of {words}")
    return tuple(values)


def offset_of(name: str, value: object) -> int:
    return whole_number(name, value, 0, MAX_LONG)


def text_of(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name}={shown(value)}: it is a text")
    return value
