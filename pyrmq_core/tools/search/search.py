"""`Search`: reads ranges of a topic with many pulls at once, and yields the messages that meet a condition.

It records its progress, so that a search that is interrupted, reaches its limit or loses its broker can report the
searched offsets. With Arrow a text or pattern is compared with whole columns of bodies, and only pulls that have a
match are decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import ModuleType
from typing import Any, Final

import trio

from pyrmq_core.client.arguments import first_millisecond
from pyrmq_core.client.arrow_library import columnar
from pyrmq_core.client.consumer.group.subscriptions import filter_of
from pyrmq_core.client.consumer.pull.pull_sizes import ReadWindow
from pyrmq_core.client.consumer.pull_consumer import PullConsumer
from pyrmq_core.errors import InvalidArgument, MissingLibrary
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageExt, MessageQueue, OffsetRange
from pyrmq_core.protocol.messages.payload import RawPull, decode
from pyrmq_core.tools.search.conditions import Condition, NoJson, Pattern, TextIn

Ranges = Sequence[tuple[MessageQueue, OffsetRange]]

# The only columns that are built for all messages.
COLUMNS: Final = ("queueOffset", "body")
QUEUES_SHOWN: Final = 5
MIB: Final = 1024 * 1024


async def ranges_of(
    consumer: PullConsumer, queues: Iterable[MessageQueue], since: datetime | None, until: datetime | None
) -> list[tuple[MessageQueue, OffsetRange]]:
    """Returns the offsets of each queue's messages stored at or after `since` and before `until`, without empty ranges.

    None means the queue's beginning, or its current end.
    """
    bounds = await consumer.offset_bounds(queues)
    held = [queue for queue, bound in bounds.items() if bound.start < bound.end]
    begins = {queue: bounds[queue].start for queue in held}
    ends = {queue: bounds[queue].end for queue in held}
    for when, offsets in ((since, begins), (until, ends)):
        if when is not None:
            at = await consumer.offsets_at(dict.fromkeys(held, first_millisecond(when)))
            offsets.update({queue: min(max(at[queue], bounds[queue].start), bounds[queue].end) for queue in held})
    return [(queue, OffsetRange(begins[queue], ends[queue])) for queue in held if begins[queue] < ends[queue]]


def queues_named(queues: Iterable[MessageQueue], names: Sequence[str]) -> list[MessageQueue]:
    """Returns the queues that a name means: `BROKER/3`, `BROKER`, or `3` of every broker; all queues without names.

    Raises `InvalidArgument` for a name that means none.
    """
    every, wanted = list(queues), frozenset(names)
    names_there = set[str]().union(*map(_names_of, every))
    for name in names:
        if name not in names_there:
            there = ", ".join(f"{queue.broker_name}/{queue.queue_id}" for queue in every[:50])
            raise InvalidArgument(f"queue {name}: the topic has no such queue to read; it has {there or 'none'}")
    return [queue for queue in every if is_named(queue, wanted)]


def is_named(queue: MessageQueue, names: Collection[str]) -> bool:
    """Returns whether one of the names means the queue; True if there are no names."""
    return not names or any(name in names for name in _names_of(queue))


def _names_of(queue: MessageQueue) -> tuple[str, str, str]:
    return f"{queue.broker_name}/{queue.queue_id}", queue.broker_name, str(queue.queue_id)


async def check_sql(consumer: PullConsumer, queues: Iterable[MessageQueue], sql: str | None) -> None:
    """Queries each broker to check the expression: for a bad expression a pull would return every message."""
    if sql is not None:
        for queue in {queue.broker_name: queue for queue in queues}.values():
            await consumer.check_sql(queue, sql)


@dataclass(slots=True)
class SearchAccount:
    """The progress of a search. `searched` counts offsets, including messages that a filter at the broker left out."""

    total: int
    searched: int = 0
    received_bytes: int = 0
    matches: int = 0
    no_json: int = 0
    is_bounded: bool = False
    reached: dict[MessageQueue, int] = field(default_factory=dict)


class Search:
    """One search of `ranges`; `account` may be read at any time.

    Without a condition every message that passes `tags` or `sql` is a match. It ends after the list of pulls that
    reaches `max_bytes`, which it may exceed by some MiB.
    """

    def __init__(
        self,
        consumer: PullConsumer,
        ranges: Ranges,
        condition: Condition | None,
        *,
        tags: str = "*",
        sql: str | None = None,
        max_bytes: int | None = None,
        patience: float = 20.0,
    ) -> None:
        self.account = SearchAccount(sum(offsets.end - offsets.start for _, offsets in ranges))
        self._consumer = consumer
        self._ranges = ranges
        self._condition = condition
        self._tags, self._sql = tags, sql
        self._filter = wanted if isinstance(wanted := filter_of(tags, sql), TagFilter) else TagFilter()
        self._max_bytes = max_bytes
        self._window = ReadWindow(patience=patience, lends_records=True)
        self._columnar = _columnar_of(condition)

    @asynccontextmanager
    async def matches(self) -> AsyncIterator[AsyncIterator[list[MessageExt]]]:
        """Yields lists of messages that meet the condition, in the order of each queue; many lists are empty.

        Raises as `PullConsumer.read_ranges`, after the matches before the failure.
        """
        reading = self._consumer.read_ranges(self._ranges, tags=self._tags, sql=self._sql, window=self._window)
        async with reading as lists, aclosing(self._matches(lists)) as matches:
            yield matches

    def unsearched(self) -> list[tuple[MessageQueue, OffsetRange]]:
        """Returns the ranges, or their parts, that were not searched yet."""
        begins = [
            (queue, self.account.reached.get(queue, offsets.start), offsets.end) for queue, offsets in self._ranges
        ]
        return [(queue, OffsetRange(begin, end)) for queue, begin, end in begins if begin < end]

    def rest_text(self) -> str:
        """Returns a text, for an error, about the number of searched messages and the offset reached in each queue."""
        account = self.account
        text = f"{account.searched:,} of {account.total:,} messages ({account.received_bytes / MIB:,.1f} MiB) searched"
        rest = self.unsearched()
        if not rest:
            return text
        names = ", ".join(
            f"{queue.broker_name}/{queue.queue_id} from {left.start}" for queue, left in rest[:QUEUES_SHOWN]
        )
        more = f" and {len(rest) - QUEUES_SHOWN} more queues" if len(rest) > QUEUES_SHOWN else ""
        return f"{text}, not searched: {names}{more}"

    async def _matches(self, lists: AsyncIterator[list[RawPull]]) -> AsyncGenerator[list[MessageExt], None]:
        account = self.account
        async for pulls in lists:
            matches: list[MessageExt] = []
            for pull, offsets in await self._promising(pulls):
                matches += self._in_pull(pull, offsets)
                await trio.lowlevel.checkpoint()
            account.matches += len(matches)
            account.received_bytes += sum(len(pull.records) for pull in pulls)
            for pull in pulls:
                account.searched += pull.next_offset - pull.start
                account.reached[pull.queue] = pull.next_offset
            yield matches
            if self._max_bytes is not None and account.received_bytes >= self._max_bytes and self.unsearched():
                account.is_bounded = True
                return

    async def _promising(self, pulls: list[RawPull]) -> Iterable[tuple[RawPull, Collection[int] | None]]:
        """Returns one queue's pulls that may have matches, in order, with the offsets that match.

        The offsets are None if the condition has to be asked about each message.
        """
        if self._columnar is None:
            return [(pull, None) for pull in pulls]
        schema = self._columnar.schema_of(COLUMNS)
        starts = [pull.start for pull in pulls]
        matching: dict[int, set[int]] = {}
        for decoded in self._columnar.decode_batches(pulls, schema, tags=self._filter):
            for offset in await self._offsets_in(decoded.batch, self._columnar):
                matching.setdefault(bisect_right(starts, offset) - 1, set()).add(offset)
            await trio.lowlevel.checkpoint()
        return [(pulls[number], offsets) for number, offsets in matching.items()]

    async def _offsets_in(self, batch: Any, columnar: ModuleType) -> list[int]:
        """Returns the offsets of a `pyarrow.RecordBatch` that match.

        A pattern is compared in a thread, and holds up no other task. A cancelled search waits for the thread: it reads
        records that are lent.
        """
        if isinstance(self._condition, TextIn):
            containing: list[int] = columnar.offsets_containing(batch, self._condition.needle)
            return containing
        assert isinstance(self._condition, Pattern)
        offsets: list[int] = []
        for part in columnar.parts_to_match(batch):
            offsets += await trio.to_thread.run_sync(columnar.offsets_matching, part, self._condition.text)
        return offsets

    def _in_pull(self, pull: RawPull, offsets: Collection[int] | None) -> list[MessageExt]:
        meeting: list[MessageExt] = []
        for message in decode(pull, OffsetRange(pull.start, pull.next_offset)):
            try:
                if self._meets(message) if offsets is None else message.queue_offset in offsets:
                    meeting.append(message)
            except NoJson:
                self.account.no_json += 1
        return meeting

    def _meets(self, message: MessageExt) -> bool:
        condition = self._condition
        assert not isinstance(condition, Pattern)
        return self._filter.matches(message.tags) and (condition is None or condition.holds(message))


def _columnar_of(condition: Condition | None) -> ModuleType | None:
    """Returns the room of columns if it decides the condition; None if messages are looked at one by one."""
    if isinstance(condition, TextIn):
        return _columnar_or_none()
    return columnar() if isinstance(condition, Pattern) else None


def _columnar_or_none() -> ModuleType | None:
    try:
        return columnar()
    except MissingLibrary:
        return None
