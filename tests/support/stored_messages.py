"""All messages of a topic, by a blocking consumer."""

import time
from collections.abc import Iterator

from pyrmq_core import MessageExt, decode
from pyrmq_core.blocking import PullConsumer

SECONDS = 120.0


def everything(consumer: PullConsumer, topic: str) -> Iterator[MessageExt]:
    """Yields the messages that are there now, queue by queue."""
    for queue, bounds in consumer.offset_bounds(consumer.message_queues(topic)).items():
        with consumer.read(queue, bounds.start, bounds.end) as pulls:
            for pull in pulls:
                yield from decode(pull)


def awaited(consumer: PullConsumer, topic: str, count: int) -> list[MessageExt]:
    """Returns the messages of a topic as soon as there are so many."""
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        messages = list(everything(consumer, topic))
        if len(messages) >= count:
            return messages
    raise AssertionError(f"{topic} has not got {count} messages in {SECONDS:g} s: {messages}")
