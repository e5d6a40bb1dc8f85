"""The failed tries of sends, which the producers of this process note; a producer's hooks would have it send otherwise.

A producer with hooks prepares each send in a task, and without them writes most requests at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pyrmq_core.client.producer.send.send_options import SendState
from pyrmq_core.errors import Outcome
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.payload import Payload
from tests.chaos.history import Event, Tried
from tests.chaos.planted import planted, replace


@contextmanager
def tries_noted(events: list[Event]) -> Iterator[None]:
    """Has the sends of the block add each failed try to the events, once for each of its messages."""

    def note(real: Callable[..., None]) -> Callable[..., None]:
        def noting(state: SendState, queue: MessageQueue, outcome: Outcome, reason: str) -> None:
            real(state, queue, outcome, reason)
            now = time.monotonic()
            began, is_unsure = now - state.attempts[-1].seconds, outcome is not Outcome.NOT_STORED
            events.extend(Tried(began, now, id_, queue.broker_name, is_unsure) for id_ in _ids(state.payload))

        return noting

    with planted(partial(replace, SendState, "note", note)):
        yield


def _ids(payload: Payload) -> Iterator[str]:
    """Yields the bodies of a request's messages."""
    if payload.batch:
        yield from (bytes(item.body).decode() for item in iterate_batch_body(payload.body))
    else:
        yield bytes(payload.body).decode()
