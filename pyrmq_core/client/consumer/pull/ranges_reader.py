"""`RangesReader`: reads several ranges, one after another, and pulls the next few ahead.

A small range is one request and its answer. Without pulling ahead, a read of many ranges would mostly wait for brokers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final

import trio

from pyrmq_core.client.consumer.pull.pull_sizes import ReadWindow
from pyrmq_core.client.consumer.pull.range_reader import RangeReader
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.messages.payload import RawPull

MakeReader = Callable[[MessageQueue, OffsetRange], RangeReader]

# The number of ranges that are pulled at once, each within its own read window.
RANGES_AT_ONCE: Final = 8
# The number of ranges that are pulled at once if all their messages fit into one read window.
SMALL_RANGES_AT_ONCE: Final = 64
# A list that is not full is delivered if the next range takes longer than this time.
HOLD_SECONDS: Final = 0.05


class RangesReader:
    """A reader of several ranges, one after another, which pulls the next few ahead. See `Puller.read_ranges`."""

    def __init__(
        self,
        make: MakeReader,
        ranges: Iterable[tuple[MessageQueue, OffsetRange]],
        nursery: trio.Nursery,
        window: ReadWindow,
        is_proxied: Callable[[MessageQueue], bool],
    ) -> None:
        self._make = make
        self._is_proxied = is_proxied
        self._waiting = deque(ranges)
        self._nursery = nursery
        self._window_messages = window.messages
        self._begun: deque[_BegunRange] = deque()
        self._begun_messages = 0

    async def joined(
        self, wanted_bytes: int, wanted_messages: int, *, share_lists: bool
    ) -> AsyncGenerator[list[RawPull], None]:
        """Yields lists of pulls of about these sizes, each of one range, or, with `share_lists`, of several."""
        held = _HeldPulls(wanted_bytes, wanted_messages)
        self._begin_more(wanted_bytes, wanted_messages)
        while self._begun:
            current = self._begun[0]
            if held.pulls and not await current.is_taken_soon():
                yield held.take()
            more = True
            while more:
                try:
                    pulls = await current.next_pulls(wanted_bytes, wanted_messages)
                except RocketMQError:
                    if held.pulls:
                        yield held.take()
                    raise
                more = bool(pulls)
                if pulls:
                    # The pulls of one range follow one another without a gap.
                    messages = pulls[-1].next_offset - pulls[0].start
                    records_bytes = sum([len(pull.records) for pull in pulls])
                    if held.pulls and not held.has_room(records_bytes, messages):
                        yield held.take()
                    held.add(pulls, records_bytes, messages)
                if more and (held.is_full or not share_lists):
                    # Lets the posted pulls be written before the caller blocks the loop by decoding.
                    await trio.lowlevel.checkpoint()
                    yield held.take()
                more = more and not current.reader.is_ended
            self._end_first()
            self._begin_more(wanted_bytes, wanted_messages)
        if held.pulls:
            yield held.take()

    def close(self) -> None:
        for begun in self._begun:
            begun.reader.close()

    def _end_first(self) -> None:
        ended = self._begun.popleft()
        ended.reader.close()
        self._begun_messages -= ended.messages

    def _begin_more(self, wanted_bytes: int, wanted_messages: int) -> None:
        while self._waiting and self._has_room(*self._waiting[0]):
            queue, offsets = self._waiting.popleft()
            begun = _BegunRange(self._make(queue, offsets), offsets.end - offsets.start)
            self._begun.append(begun)
            self._begun_messages += begun.messages
            self._nursery.start_soon(begun.begin, wanted_bytes, wanted_messages)

    def _has_room(self, queue: MessageQueue, offsets: OffsetRange) -> bool:
        if self._is_proxied(queue):  # a proxy would drop answers to several ranges at once
            return not self._begun
        if len(self._begun) < RANGES_AT_ONCE:
            return True
        messages = self._begun_messages + offsets.end - offsets.start
        return len(self._begun) < SMALL_RANGES_AT_ONCE and messages <= self._window_messages


class _BegunRange:
    def __init__(self, reader: RangeReader, messages: int) -> None:
        self.reader = reader
        self.messages = messages
        self._taken = trio.Event()
        self._pulls: list[RawPull] | None = None
        self._error: RocketMQError | None = None

    async def begin(self, wanted_bytes: int, wanted_messages: int) -> None:
        try:
            self._pulls = await self.reader.take(wanted_bytes, wanted_messages)
        except RocketMQError as error:
            self._error = error
        self._taken.set()

    async def is_taken_soon(self) -> bool:
        if not self._taken.is_set():
            with trio.move_on_after(HOLD_SECONDS):
                await self._taken.wait()
        return self._taken.is_set()

    async def next_pulls(self, wanted_bytes: int, wanted_messages: int) -> list[RawPull]:
        if not self._taken.is_set():
            await self._taken.wait()
        if self._error is not None:
            raise self._error
        pulls, self._pulls = self._pulls, None
        return await self.reader.take(wanted_bytes, wanted_messages) if pulls is None else pulls


class _HeldPulls:
    def __init__(self, wanted_bytes: int, wanted_messages: int) -> None:
        self._wanted_bytes = wanted_bytes
        self._wanted_messages = wanted_messages
        self._bytes = self._messages = 0
        self.pulls: list[RawPull] = []

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._wanted_bytes or self._messages >= self._wanted_messages

    def has_room(self, records_bytes: int, messages: int) -> bool:
        return self._bytes + records_bytes <= self._wanted_bytes and self._messages + messages <= self._wanted_messages

    def add(self, pulls: list[RawPull], records_bytes: int, messages: int) -> None:
        self.pulls += pulls
        self._bytes += records_bytes
        self._messages += messages

    def take(self) -> list[RawPull]:
        pulls, self.pulls, self._bytes, self._messages = self.pulls, [], 0, 0
        return pulls
