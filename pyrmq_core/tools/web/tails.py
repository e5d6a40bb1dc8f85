"""`read_tail`: the messages that arrived in a topic since a position (`TailPlace`), for a page that follows the topic.

The server keeps no state for such a page: the page's address has the position. The position moves only over messages
that were read, so messages that were left out by a limit or a failure are part of a later answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Final

import trio

from pyrmq_core import MessageExt, MessageQueue, RocketMQError
from pyrmq_core.client.arguments import first_millisecond
from pyrmq_core.client.consumer.group.subscriptions import filter_of
from pyrmq_core.client.texts import Text
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.tools.search.conditions import Condition, LongJson, NoJson
from pyrmq_core.tools.search.ranges import check_sql, offsets_that_answer, queues_named
from pyrmq_core.tools.web.masks import MaskedCondition
from pyrmq_core.tools.web.message_reads import (
    MAX_QUEUES_READ,
    QUEUES_READ_AT_ONCE,
    FoundMessages,
    MessageKey,
    MessageReads,
    Wanted,
    newest_first,
)

# An answer ends after this many matches or seconds, or this many offsets of all queues together.
PART_MESSAGES: Final = 200
PART_SECONDS: Final = 3.0
PART_OFFSETS: Final = 4096
# How many offsets of a queue are read before its position moves.
STEP_OFFSETS: Final = 32
# The longest position as text, enough for 256 queues with offsets of 19 digits.
MAX_CHARACTERS: Final = 12 * 1024
# A position as text: the time in ms at which the tail began, then each broker with its queues and offsets, such as
# `1764424800000 broker-a:0.12.1.15`.
TEXT: Final = re.compile(r"[0-9]{1,14}( [^\s:]{1,255}:[0-9]{1,9}\.[0-9]{1,19}(\.[0-9]{1,9}\.[0-9]{1,19})*)*")


@dataclass(frozen=True, slots=True)
class TailPlace:
    """The position of a tail: the next offset of each queue of one topic, and the time at which the tail began."""

    began_ms: int
    offsets: Mapping[MessageQueue, int]

    @classmethod
    def parse(cls, text: str, topic: str) -> TailPlace:
        if len(text) > MAX_CHARACTERS or not TEXT.fullmatch(text):
            raise InvalidArgument(Text("this is no place of a tail; begin the tail again"))
        began, *brokers = text.split(" ")
        offsets: dict[MessageQueue, int] = {}
        for part in brokers:
            name, _, rest = part.partition(":")
            numbers = list(map(int, rest.split(".")))
            offsets |= {MessageQueue(topic, name, numbers[at]): numbers[at + 1] for at in range(0, len(numbers), 2)}
        return cls(int(began), offsets)

    def text(self) -> str:
        brokers: dict[str, list[str]] = {}
        for queue, offset in sorted(self.offsets.items()):
            brokers.setdefault(queue.broker_name, []).append(f"{queue.queue_id}.{offset}")
        return " ".join([str(self.began_ms), *(f"{name}:{'.'.join(parts)}" for name, parts in brokers.items())])


@dataclass(frozen=True, slots=True)
class TailPart:
    """The messages that were read, the position for the next call, and the number of messages stored after it."""

    found: FoundMessages
    place: TailPlace
    behind: int


async def read_tail(
    reads: MessageReads, wanted: Wanted, condition: Condition | None, place: TailPlace | None
) -> TailPart:
    """Returns the messages that match and arrived since `place`, and the position for the next call.

    If `place` is None, reading begins at the time `wanted.since`, or if that is None at the current end of each queue.
    """
    now = datetime.now(UTC)
    stats = await reads.admin.topics.stats(wanted.topic)
    ends = {queue: stats.queues[queue] for queue in queues_named(stats.queues, wanted.queue.split())}
    if len(ends) > MAX_QUEUES_READ:
        values = {"most": MAX_QUEUES_READ, "number": len(ends)}
        raise InvalidArgument(Text("a tail reads {most} queues at most, of {number} here: name some", **values))
    if place is None:
        await check_sql(reads.consumer, ends, wanted.sql or None)
        begins = {queue: end.max_offset for queue, end in ends.items()} if wanted.since is None else {}
        place = TailPlace(max(0, first_millisecond(wanted.since or now)), begins)
    offsets = dict(place.offsets)
    # Queues that are new, or whose offset is beyond their end: the topic was created again, a slave answers, or a crash
    # lost the last messages.
    later = {queue for queue, end in ends.items() if offsets.get(queue, math.inf) > end.max_offset}
    at, failures = await offsets_that_answer(reads.consumer, later, place.began_ms)
    offsets |= at
    for queue in later - at.keys():
        del ends[queue]
    texts = {name: str(error) for name, error in {**stats.failures, **failures}.items()}
    part = _Part(reads, wanted, condition, offsets, texts)
    each = max(STEP_OFFSETS, PART_OFFSETS // max(1, len(ends)))
    async with trio.open_nursery() as nursery:
        for queue, end in ends.items():
            offsets[queue] = min(max(offsets[queue], end.min_offset), end.max_offset)
            nursery.start_soon(part.read, queue, min(end.max_offset, offsets[queue] + each))
    newest_first(part.messages, part.failures, part.faults)
    text = Text("{number:,} bodies are too long to be parsed", number=part.long_json) if part.long_json else ""
    listed = FoundMessages(tuple(part.messages), part.failures, faults=part.faults, searched=text)
    behind = sum(end.max_offset - offsets[queue] for queue, end in ends.items())
    return TailPart(listed, TailPlace(place.began_ms, offsets), behind)


@dataclass(slots=True)
class _Part:
    """The state of one call of `read_tail`: the matches so far, and the next offset of each queue.

    Reading stops at the monotonic time `until`.
    """

    reads: MessageReads
    wanted: Wanted
    condition: Condition | None
    offsets: dict[MessageQueue, int]
    failures: dict[str, str]
    messages: list[MessageExt] = field(default_factory=list)
    faults: dict[MessageKey, str] = field(default_factory=dict)
    long_json: int = 0
    room: trio.CapacityLimiter = field(default_factory=partial(trio.CapacityLimiter, QUEUES_READ_AT_ONCE))
    until: float = field(default_factory=lambda: monotonic() + PART_SECONDS)
    tags: TagFilter = field(default_factory=TagFilter)

    def __post_init__(self) -> None:
        wanted = filter_of(self.wanted.tags or "*", self.wanted.sql or None)
        self.tags = wanted if isinstance(wanted, TagFilter) else self.tags
        self.condition = self.condition and MaskedCondition(self.reads.masks, self.condition)

    async def read(self, queue: MessageQueue, end: int) -> None:
        async with self.room:
            while (start := self.offsets[queue]) < end and not self._is_full():
                step = min(end, start + STEP_OFFSETS)
                try:
                    read = await self.reads.read_range(
                        queue, start, step, self.faults, self.wanted, self._matches, self._is_full
                    )
                except RocketMQError as error:
                    self.failures[str(queue)] = str(error)
                    return
                self.messages += read[0]
                self.offsets[queue] = read[1]
                if read[1] <= start:
                    return

    def _is_full(self) -> bool:
        return len(self.messages) >= PART_MESSAGES or monotonic() >= self.until

    def _matches(self, message: MessageExt) -> bool:
        try:
            return self.tags.matches(message.tags) and (self.condition is None or self.condition.holds(message))
        except LongJson:
            self.long_json += 1
        except NoJson:
            pass
        return False
