"""Rows that brokers refuse for what they are, stored in a topic of their own with where they were to go and why not.

property        is
refusedTopic    the topic they were sent to
refusedCode     the broker's response code
refusedReason   its answer, in one line, as long as the row's own properties leave room for
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyrmq_core import AnyQueue, InvalidState, RefusedMessage, WriteSummary, readdressed
from pyrmq_core.blocking import Producer, SendWindow
from pyrmq_spark.options import SinkOptions

MAX_REASON: Final = 500


class DeadLetters:
    """A window into the topic for them; without one, nothing is ever refused to it."""

    def __init__(self, topic: str | None, window: SendWindow | None) -> None:
        self._topic = topic
        self._window = window
        self.summary = WriteSummary() if window is None else window.summary

    def put_all(self, refused: Sequence[RefusedMessage]) -> None:
        """Raises the first failure: a dead letter that is not stored fails the write."""
        for one in refused:
            if self._topic is None or self._window is None:
                raise InvalidState("a refused row, and no topic for it")
            refusal = {
                "refusedTopic": one.payload.topic,
                "refusedCode": str(one.code),
                "refusedReason": reason(one),
            }
            self._window.put(readdressed(one.payload, self._topic, refusal), AnyQueue())

    def drain(self) -> None:
        """Waits until each one is acknowledged."""
        if self._window is not None:
            self._window.drain()


@contextmanager
def open_dead_letters(producer: Producer, options: SinkOptions) -> Iterator[DeadLetters]:
    """Opens the dead letters of one task."""
    if options.dead_letter_topic is None:
        yield DeadLetters(None, None)
        return
    with producer.open_window(max_requests=options.requests_in_flight, timeout=options.send_timeout) as window:
        yield DeadLetters(options.dead_letter_topic, window)


def reason(refused: RefusedMessage) -> str:
    """Returns the reason as far as a property can hold it."""
    text = str(refused.error.__cause__ or refused.error)
    return " ".join(text.replace("\x01", " ").replace("\x02", " ").split())[:MAX_REASON]
