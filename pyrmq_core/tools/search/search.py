"""`Search`: reads ranges of a topic in slices of time, the newest first, and yields the messages that meet a condition.

A search that is interrupted or reaches its limit can report what it has read. If a broker fails or a record cannot be
decoded, the search goes on without that part. Bodies are decompressed and compared in a thread, one at a time. If Arrow
is installed, a text or pattern is compared with whole columns of bodies, and only messages that match are decoded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias

import trio

from pyrmq_core.client.arrow_library import columnar
from pyrmq_core.client.consumer.group.subscriptions import filter_of
from pyrmq_core.client.consumer.pull.pull_sizes import ReadWindow
from pyrmq_core.client.consumer.pull_consumer import PullConsumer
from pyrmq_core.client.texts import Text, joined
from pyrmq_core.client.unpacking import in_steps, in_thread
from pyrmq_core.errors import MissingLibrary, NetworkError, RecordError, RocketMQError, RoutingError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageExt, MessageQueue, OffsetRange
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.messages.bodies import MAX_BODY_BYTES, BodyRules
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.readable import Readable, UnreadableRecord, has_compressed, iterate_readable
from pyrmq_core.tools.search.conditions import Condition, LongJson, NoJson, Pattern, TextIn
from pyrmq_core.tools.search.ranges import Ranges
from pyrmq_core.tools.search.time_slices import TimeSlices

OnUndecodable: TypeAlias = Literal["skip", "fail"]

# The only Arrow columns that are built for all messages.
COLUMNS: Final = ("queueOffset", "body")
QUEUES_SHOWN: Final = 5
MIB: Final = 1024 * 1024
# The matches of a time slice are collected until the slice is read, and sorted by time. Beyond this size they are
# yielded earlier.
HELD_BYTES: Final = 64 * MIB
# Matches are also yielded after this many unpacked bytes of a slice, whose size has no limit.
UNPACKED_BYTES: Final = 256 * MIB
UNREADABLE_KEPT: Final = 10


@dataclass(slots=True)
class SearchAccount:
    """The progress of a search. `searched` counts offsets, including messages that a filter at the broker left out.

    `received_bytes` is the size of the records, and `unpacked_bytes` the size of the examined bodies. `unreadable`
    counts records that cannot be decoded, and `unreadable_texts` has the first errors. `is_bounded` is True if the
    search ended at its limit of bytes. All messages stored since `bound` have been read, or with `oldest_first` all
    stored before `bound`. `bound` is None before the first slice of time is read, and at the end.
    """

    total: int
    searched: int = 0
    received_bytes: int = 0
    unpacked_bytes: int = 0
    matches: int = 0
    no_json: int = 0
    long_json: int = 0
    unreadable: int = 0
    unreadable_texts: list[str] = field(default_factory=list)
    is_bounded: bool = False
    bound: datetime | None = None
    failures: dict[str, RocketMQError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The settings of a search: its filters at the broker, its limits, its order, and what it keeps of a match.

    The search ends after `max_bytes` of records or bodies, but not within the first slice of time. It waits `patience`
    seconds for a failing broker. `keep` may shorten a match, which saves memory. `most` limits the matches of a slice.
    """

    tags: str = "*"
    sql: str | None = None
    max_bytes: int | None = None
    patience: float = 20.0
    oldest_first: bool = False
    on_undecodable: OnUndecodable = "skip"
    max_body_bytes: int = MAX_BODY_BYTES
    most: int | None = None
    keep: Callable[[MessageExt], MessageExt] = lambda message: message


class Search:
    """A search of offset ranges, which finds messages stored before `begin`, by default now.

    With `oldest_first` it finds messages stored at or after `begin`, by default 1970. If the condition is None, every
    message that passes the filters matches. `account` may be read at any time.
    """

    def __init__(
        self,
        consumer: PullConsumer,
        ranges: Ranges,
        condition: Condition | None,
        form: SearchForm = SearchForm(),
        *,
        begin: datetime | None = None,
    ) -> None:
        self.account = SearchAccount(sum(len(offsets) for _, offsets in ranges))
        self._consumer = consumer
        self._condition = condition
        self._form = form
        begin = begin or (datetime.fromtimestamp(0, UTC) if form.oldest_first else datetime.now(UTC))
        self._slices = TimeSlices(consumer, ranges, begin, oldest_first=form.oldest_first)
        self._filter = wanted if isinstance(wanted := filter_of(form.tags, form.sql), TagFilter) else TagFilter()
        self._rules = BodyRules(max_body_bytes=form.max_body_bytes)
        self._window = ReadWindow(patience=form.patience, lends_records=True)
        self._columnar = _columnar_of(condition)
        self._sender, self._receiver = trio.open_memory_channel[list[MessageExt]](0)
        self._left = dict(ranges)
        self._held: list[MessageExt] = []
        self._held_bytes = self._sent_at_bytes = 0
        self._failed: set[MessageQueue] = set()
        self._error: RocketMQError | None = None

    @asynccontextmanager
    async def matches(self) -> AsyncIterator[AsyncIterator[list[MessageExt]]]:
        """Runs the search, and yields an iterator over lists of matching messages, in the order of their store times.

        The newest come first, unless the search is `oldest_first`. Failed brokers are listed in `account`. If
        `on_undecodable` is "fail", raises `RecordError` for a record that cannot be decoded.
        """
        async with open_owned_nursery() as nursery, aclosing(self._lists()) as lists:
            nursery.start_soon(self._run)
            yield lists

    @property
    def oldest_first(self) -> bool:
        return self._form.oldest_first

    def held(self) -> list[MessageExt]:
        """Returns the matches that were found but not yielded, for a search that was cancelled."""
        return self._sorted()

    def unsearched(self) -> list[tuple[MessageQueue, OffsetRange]]:
        """Returns the ranges still to be searched, including all of the current slice."""
        return [(queue, offsets) for queue, offsets in self._left.items() if len(offsets)]

    def rest_text(self) -> str:
        account = self.account
        values = {"searched": account.searched, "total": account.total, "size": account.received_bytes / MIB}
        text = Text("{searched:,} of {total:,} messages ({size:,.1f} MiB) searched", **values)
        unsearched = self.unsearched()
        if not unsearched:
            return text
        names = [
            Text("{queue} from {offset}", queue=f"{queue.broker_name}/{queue.queue_id}", offset=left.start)
            if self._form.oldest_first
            else Text("{queue} before {offset}", queue=f"{queue.broker_name}/{queue.queue_id}", offset=left.end)
            for queue, left in unsearched[:QUEUES_SHOWN]
        ]
        queues = joined(names, by_commas=True)
        if (more := len(unsearched) - QUEUES_SHOWN) > 0:
            queues = Text("{queues} and {number} more queues", queues=queues, number=more)
        return Text("{text}, not searched: {queues}", text=text, queues=queues)

    async def _lists(self) -> AsyncGenerator[list[MessageExt], None]:
        async for messages in self._receiver:
            yield messages
            del messages
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        account = self.account
        async with self._sender:
            try:
                while not account.is_bounded and (part := await self._slices.next()) is not None:
                    before = account.unpacked_bytes
                    await self._read(part.ranges)
                    await self._send_held()
                    if not account.is_bounded:
                        self._note_read(part.ranges)
                        account.bound = part.rest_bound
                        account.is_bounded = self._is_full() and part.rest_bound is not None
                    self._slices.adapt(account.unpacked_bytes - before)
            except RocketMQError as error:
                self._error = error
            account.failures.update(self._slices.failures)

    def _is_full(self) -> bool:
        most, account = self._form.max_bytes, self.account
        return most is not None and max(account.received_bytes, account.unpacked_bytes) >= most

    def _note_read(self, ranges: Ranges) -> None:
        for queue, offsets in ranges:
            if queue not in self._failed:
                start, end = self._left[queue].start, self._left[queue].end
                unread = (offsets.end, end) if self._form.oldest_first else (start, offsets.start)
                self._left[queue] = OffsetRange(*unread)

    async def _read(self, ranges: Ranges) -> None:
        """Searches the ranges of a slice. Drops a queue that fails, or all queues of an unreachable broker."""
        waiting = dict(ranges)
        while waiting and not self.account.is_bounded:
            try:
                await self._read_in_order(waiting)
            except RocketMQError as error:
                if self._form.on_undecodable == "fail" and isinstance(error, RecordError | MissingLibrary):
                    raise
                failed = next(iter(waiting))
                is_away = isinstance(error, NetworkError | RoutingError)
                self.account.failures[failed.broker_name if is_away else str(failed)] = error
                gone = {queue for queue in self._left if queue.broker_name == failed.broker_name}
                for queue in gone if is_away else {failed}:
                    self._failed.add(queue)
                    self._slices.drop(queue)
                    waiting.pop(queue, None)

    async def _read_in_order(self, waiting: dict[MessageQueue, OffsetRange]) -> None:
        form, account = self._form, self.account
        ranges = list(waiting.items())
        reading = self._consumer.read_ranges(ranges, tags=form.tags, sql=form.sql, window=self._window)
        async with reading as lists:
            async for pulls in lists:
                await self._look_at(pulls)
                account.received_bytes += sum(len(pull.records) for pull in pulls)
                account.searched += sum(pull.next_offset - pull.start for pull in pulls)
                queue, reached = pulls[-1].queue, pulls[-1].next_offset
                waiting[queue] = OffsetRange(reached, waiting[queue].end)
                while waiting and not len(next(iter(waiting.values()))):
                    del waiting[next(iter(waiting))]
                if account.bound is not None and self._is_full():
                    account.is_bounded = True
                    return
        waiting.clear()

    async def _look_at(self, pulls: Sequence[RawPull]) -> None:
        """Collects the matches in pulls. If no body is compressed, compares bodies as Arrow columns where it can."""
        are_plain = not any(has_compressed(pull.records) for pull in pulls)
        remaining = pulls if self._columnar is None or not are_plain else await self._by_columns(pulls, self._columnar)
        for pull in remaining:
            await self._by_message(pull, self._match)

    async def _by_columns(self, pulls: Sequence[RawPull], columns: ModuleType) -> Sequence[RawPull]:
        """Collects the matches in pulls by comparing bodies as Arrow columns.

        Returns the pulls that must be compared message by message: they begin at the first record that Arrow cannot
        decode.
        """
        schema, max_body_bytes = columns.schema_of(COLUMNS), self._form.max_body_bytes
        batches = columns.decode_batches(
            pulls, schema, tags=self._filter, allow_gaps=True, max_body_bytes=max_body_bytes
        )
        remaining = pulls
        try:
            while (decoded := await in_thread(next, batches, None)) is not None:
                self.account.unpacked_bytes += decoded.batch.nbytes
                offsets, following = await self._offsets_in(decoded.batch, columns), decoded.rest
                del decoded  # frees the bodies before the matches are unpacked
                for pull in remaining if offsets else ():
                    if own := offsets.intersection(range(pull.start, pull.next_offset)):
                        await self._by_message(pull, self._kept, own)
                remaining = following
        except (RecordError, MissingLibrary):
            return remaining
        return ()

    async def _offsets_in(self, batch: Any, columns: ModuleType) -> set[int]:
        """Returns the offsets of matches in a `pyarrow.RecordBatch`. A cancellation waits for the comparing thread."""
        if isinstance(self._condition, TextIn):
            return set(await in_thread(columns.offsets_containing, batch, self._condition.needle))
        assert isinstance(self._condition, Pattern)
        offsets: set[int] = set()
        for part in columns.parts_to_match(batch):
            offsets.update(await trio.to_thread.run_sync(columns.offsets_matching, part, self._condition.text))
        return offsets

    async def _by_message(
        self, pull: RawPull, keep: Callable[[Readable], MessageExt | None], offsets: Collection[int] | None = None
    ) -> None:
        own = OffsetRange(pull.start, max(pull.start, pull.next_offset))
        items = iterate_readable(pull, own, self._rules, offsets=offsets)
        async with aclosing(in_steps(items, keep)) as lists:
            async for matches in lists:
                self._hold(matches)
                del matches
                if self._is_heavy():
                    await self._send_held()

    def _match(self, item: Readable) -> MessageExt | None:
        if isinstance(item, UnreadableRecord):
            self._note_unreadable(item)
            return None
        self.account.unpacked_bytes += len(item.body)
        try:
            if self._filter.matches(item.tags) and (self._condition is None or self._condition.holds(item)):
                return self._form.keep(item)
        except LongJson:
            self.account.long_json += 1
        except NoJson:
            self.account.no_json += 1
        return None

    def _kept(self, item: Readable) -> MessageExt | None:
        return None if isinstance(item, UnreadableRecord) else self._form.keep(item)

    def _note_unreadable(self, record: UnreadableRecord) -> None:
        if self._form.on_undecodable == "fail":
            raise record.error
        self.account.unreadable += 1
        if len(self.account.unreadable_texts) < UNREADABLE_KEPT:
            self.account.unreadable_texts.append(str(record.error))

    def _hold(self, matches: list[MessageExt]) -> None:
        self.account.matches += len(matches)
        self._held += matches
        self._held_bytes += sum(len(message.body) for message in matches)
        most = self._form.most
        if most is not None and len(self._held) > 2 * most:
            self._held = self._sorted()[:most]
            self._held_bytes = sum(len(message.body) for message in self._held)

    def _is_heavy(self) -> bool:
        unpacked = self.account.unpacked_bytes - self._sent_at_bytes
        return self._held_bytes > HELD_BYTES or (bool(self._held) and unpacked > UNPACKED_BYTES)

    async def _send_held(self) -> None:
        if self._held:
            await self._sender.send(self._sorted())
            self._held, self._held_bytes = [], 0
        self._sent_at_bytes = self.account.unpacked_bytes

    def _sorted(self) -> list[MessageExt]:
        in_order = sorted(
            self._held,
            key=lambda match: (match.store_timestamp_ms, match.broker_name, match.queue_id, match.queue_offset),
        )
        return in_order if self._form.oldest_first else in_order[::-1]


def _columnar_of(condition: Condition | None) -> ModuleType | None:
    """Returns the module `columnar` if it can compare bodies for the condition, or None."""
    if isinstance(condition, TextIn):
        return _columnar_or_none()
    return columnar() if isinstance(condition, Pattern) else None


def _columnar_or_none() -> ModuleType | None:
    try:
        return columnar()
    except MissingLibrary:
        return None
