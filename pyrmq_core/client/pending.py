"""Sends that nobody waits for yet: `PendingSend`, and the bound on how many may be under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from pyrmq_core.client.communication_mode import CommunicationMode
from pyrmq_core.client.receipts import Receipt, SendResults
from pyrmq_core.client.sending import Sender
from pyrmq_core.client.story import SendStory
from pyrmq_core.client.targets import Target
from pyrmq_core.client.under_way import Soon, UnderWay
from pyrmq_core.errors import InvalidArgument, RocketMQError, SendFailed, WindowFull
from pyrmq_core.model import SendResult
from pyrmq_core.protocol.payload import Payload

# A caller that never has to wait lets others run this often.
CALLS_BETWEEN_CHECKPOINTS: Final = 64


class PendingSend:
    """One message under way."""

    __slots__ = ("_callbacks", "_error", "_index", "_result", "_results", "_waited", "is_done", "story")

    def __init__(self) -> None:
        self.is_done = False
        self.story: SendStory[Receipt] | None = None
        self._waited: trio.Event | None = None
        self._results: Receipt | SendResults | None = None
        self._index = 0
        self._result: SendResult | None = None
        self._error: RocketMQError | None = None
        self._callbacks: list[Callable[[PendingSend], None]] | None = None

    async def wait(self) -> SendResult:
        """The acknowledgement; raises what the send failed with, each time it is asked."""
        if self.is_done:
            await trio.lowlevel.checkpoint()
        else:
            if self._waited is None:
                self._waited = trio.Event()
            await self._waited.wait()
        return self.result

    def add_done_callback(self, callback: Callable[[PendingSend], None]) -> None:
        """Called on the loop when the send ends, at once when it has ended."""
        if self.is_done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    @property
    def result(self) -> SendResult:
        """What an ended send brought; raises what it failed with."""
        if self._result is None:
            self._read()
            if self._error is not None:
                raise self._error
        assert self._result is not None, "the send is still under way"
        return self._result

    @property
    def error(self) -> RocketMQError | None:
        """What an ended send failed with."""
        if self._result is None:
            self._read()
        return self._error

    def set_results(self, results: Receipt | SendResults, index: int = 0) -> None:
        """It is stored; the acknowledgement is read when somebody asks for it."""
        self._results, self._index = results, index
        self._end()

    def set_error(self, error: RocketMQError) -> None:
        self._error = error
        self._end()

    def _read(self) -> None:
        results, self._results = self._results, None
        if results is None:
            return
        try:
            self._result = results.result() if isinstance(results, Receipt) else results[self._index]
        except SendFailed as unreadable:
            self._error = unreadable

    def begun(self, story: SendStory[Receipt]) -> None:
        """Its payload is kept no longer than it is under way, however long the result is."""
        if not self.is_done:
            self.story = story

    def _end(self) -> None:
        self.is_done = True
        self.story = None
        if self._waited is not None:
            self._waited.set()
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)


def check_bounds(max_count: int, max_bytes: int) -> tuple[int, int]:
    """The two bounds of `InFlight`; `InvalidArgument` for one that lets nothing in."""
    if max_count < 1 or max_bytes < 1:
        raise InvalidArgument(f"max_in_flight={max_count}, max_in_flight_bytes={max_bytes}: 1 is the least of both")
    return max_count, max_bytes


class InFlight:
    """Sends under way that nobody waits for, bounded by count and by bytes; who comes first is let in first."""

    def __init__(self, nursery: trio.Nursery, sender: Sender, max_count: int, max_bytes: int) -> None:
        self._under_way = UnderWay(nursery, sender)
        self._lock = threading.Lock()
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        self._calls = 0
        self._turn = trio.Lock()
        self._ended: trio.Event | None = None

    def enter_nowait(self, size: int) -> bool:
        """Takes room for a message of so many bytes, unless there is none or others wait for it; from any thread."""
        with self._lock:
            if self._turn.locked() or not self._has_room(size):
                return False
            self._count += 1
            self._bytes += size
            return True

    async def enter(self, size: int, *, wait: bool = True) -> None:
        """Waits for room for so many bytes, first come first served; `WindowFull` instead, when `wait` is false."""
        if not self.enter_nowait(size):
            if not wait:
                raise self.full()
            async with self._turn:
                while not self._has_room(size):
                    await self._next_end()
                with self._lock:
                    self._count += 1
                    self._bytes += size
            return
        self._calls += 1
        if not self._calls % CALLS_BETWEEN_CHECKPOINTS:
            try:
                await trio.lowlevel.checkpoint()
            except BaseException:
                self.leave(size)
                raise

    def full(self) -> WindowFull:
        """What is raised instead of waiting."""
        return WindowFull(
            f"{self._count} messages and {self._bytes} bytes are under way, and {self._max_count} and "
            f"{self._max_bytes} may be (max_in_flight, max_in_flight_bytes); wait for some of them"
        )

    def leave(self, size: int, count: int = 1) -> None:
        """So many messages and bytes are not under way any more."""
        with self._lock:
            self._count -= count
            self._bytes -= size
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.set()

    def start(
        self,
        payload: Payload,
        to: Target,
        timeout: float,
        pendings: Sequence[PendingSend],
        entered: tuple[int, int],
        mode: CommunicationMode = CommunicationMode.ASYNC,
    ) -> None:
        """Sends in the background one payload, whose messages are `pendings`.

        `entered` are the messages and bytes that leave with it; (0, 0) for what is bounded by those who wait for it.
        """
        ended = partial(self._leave_with, pendings, entered)
        pendings[0].begun(self._under_way.start(payload, to, timeout, mode, ended))

    def start_aside(
        self, payload: Payload, to: Target, timeout: float, pending: PendingSend, now: float, soon: Soon
    ) -> bool:
        """As `start` for one message; `UnderWay.start_aside` says when, and when not."""
        ended = partial(self._leave_with, (pending,), (0, 0))
        story = self._under_way.start_aside(payload, to, timeout, now, soon, ended)
        if story is not None:
            pending.begun(story)
        return story is not None

    def give_up(self, pending: PendingSend) -> None:
        """Nobody waits for it any more: what has not left of it does not leave."""
        if pending.story is not None:
            self._under_way.give_up(pending.story)

    async def drain(self) -> None:
        """Waits until nothing is under way."""
        while self._count:
            await self._next_end()

    def abandon(self) -> None:
        """Ends everything under way, and all that comes after: its producer is closed."""
        self._under_way.abandon()

    def _leave_with(
        self, pendings: Sequence[PendingSend], entered: tuple[int, int], end: Receipt | RocketMQError
    ) -> None:
        count, size = entered
        if count:
            self.leave(size, count)
        results: Receipt | SendResults | RocketMQError = end
        if isinstance(end, Receipt) and len(pendings) > 1:
            try:
                results = end.results()
            except SendFailed as unreadable:
                results = unreadable
        for index, pending in enumerate(pendings):
            if isinstance(results, RocketMQError):
                pending.set_error(results)
            else:
                pending.set_results(results, index)

    async def _next_end(self) -> None:
        if self._ended is None:
            self._ended = trio.Event()
        await self._ended.wait()

    def _has_room(self, size: int) -> bool:
        """A payload larger than the bound goes when it is alone."""
        return self._count == 0 or (self._count < self._max_count and self._bytes + size <= self._max_bytes)
