"""`read_ranges`: reads several ranges, one behind another, while the next few are pulled already.

A small range is one request and its answer. Were each begun when the one before it has ended, a read of many would wait
for a broker most of its time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final

import trio

from pyrmq_core.client.consumer.pull.range_reader import RangeReader
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.messages.payload import RawPull

MakeReader = Callable[[MessageQueue, OffsetRange], RangeReader]

# The ranges that are pulled at once. Each holds up to a read window.
RANGES_AT_ONCE: Final = 8


class RangesReader:
    """Reads ranges in their order; made and closed by `Puller.read_ranges`, in whose nursery its tasks run."""

    def __init__(
        self, make: MakeReader, ranges: Iterable[tuple[MessageQueue, OffsetRange]], nursery: trio.Nursery
    ) -> None:
        self._make = make
        self._waiting = iter(ranges)
        self._nursery = nursery
        self._begun: deque[_BegunRange] = deque()

    async def joined(self, wanted_bytes: int, wanted_messages: int) -> AsyncGenerator[list[RawPull], None]:
        """Yields lists of pulls of one range each, of about so many bytes or messages.

        Raises the error of a range when its turn comes, after all pulls before it.
        """
        self._begin_more(wanted_bytes, wanted_messages)
        while self._begun:
            current = self._begun[0]
            pulls = await current.first_pulls()
            while pulls:
                # The next pulls are posted: let them be written before the caller holds up the loop with decoding.
                await trio.lowlevel.checkpoint()
                yield pulls
                pulls = await current.reader.take(wanted_bytes, wanted_messages)
            self._begun.popleft().reader.close()
            self._begin_more(wanted_bytes, wanted_messages)

    def close(self) -> None:
        """Ignores the answers to pulls under way."""
        for one in self._begun:
            one.reader.close()

    def _begin_more(self, wanted_bytes: int, wanted_messages: int) -> None:
        while len(self._begun) < RANGES_AT_ONCE and (following := next(self._waiting, None)) is not None:
            one = _BegunRange(self._make(*following))
            self._begun.append(one)
            self._nursery.start_soon(one.begin, wanted_bytes, wanted_messages)


class _BegunRange:
    """A range whose first pulls are taken by a task of its own."""

    def __init__(self, reader: RangeReader) -> None:
        self.reader = reader
        self._taken = trio.Event()
        self._pulls: list[RawPull] = []
        self._error: RocketMQError | None = None

    async def begin(self, wanted_bytes: int, wanted_messages: int) -> None:
        try:
            self._pulls = await self.reader.take(wanted_bytes, wanted_messages)
        except RocketMQError as error:
            self._error = error
        self._taken.set()

    async def first_pulls(self) -> list[RawPull]:
        """Returns the first pulls when they are there; raises their error. To be called once."""
        await self._taken.wait()
        if self._error is not None:
            raise self._error
        pulls, self._pulls = self._pulls, []
        return pulls
