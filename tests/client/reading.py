"""Helpers for tests of reading: a filled queue, and a range read whole and checked."""

from pyrmq_core import MessageQueue, OffsetRange, RawPull, ReadWindow, TagFilter, decode
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage
from tests.support.scripted import PULL
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)


def fill(stage: Stage, count: int, *, tag_every: int = 0, size: int = 0) -> list[bytes]:
    """Stores so many messages in orders/broker-a/0; every `tag_every`th has the tag "yes"."""
    bodies = [b"%d|" % number + b"x" * size for number in range(count)]
    for number, body in enumerate(bodies):
        tagged = tag_every and number % tag_every == 0
        stage.stores["broker-a"].put("orders", 0, body, "TAGS\x01yes\x02" if tagged else "")
    return bodies


async def read_all(
    puller: Puller, start: int, end: int, *, tags: str = "*", window: ReadWindow | None = None, allow_gaps: bool = False
) -> tuple[list[int], list[RawPull]]:
    """Returns the offsets of all messages, each pull clipped to its own range, and the pulls."""
    offsets: list[int] = []
    pulls: list[RawPull] = []
    async with puller.read(A0, start, end, tags=TagFilter.parse(tags), window=window or ReadWindow()) as source:
        async for pull in source:
            pulls.append(pull)
            own = OffsetRange(pull.start, pull.next_offset)
            offsets += [message.queue_offset for message in decode(pull, own, allow_gaps=allow_gaps)]
    position = start
    for pull in pulls:  # in order, without a gap, and not beyond the end
        assert pull.start == position
        assert pull.start < pull.next_offset <= end
        position = pull.next_offset
    assert position == end or not pulls
    return offsets, pulls


def requested(stage: Stage) -> list[PullMessage]:
    return [PullMessage.from_command(command) for command in stage.brokers["broker-a"].of(PULL)]
