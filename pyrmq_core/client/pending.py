"""Sends that nobody waits for yet: `PendingSend`, and the bound on how many may be under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.client.communication_mode import CommunicationMode
from pyrmq_core.client.sending import Sender
from pyrmq_core.client.targets import Target
from pyrmq_core.errors import InvalidArgument, Outcome, RocketMQError, SendFailed, WindowFull
from pyrmq_core.model import SendResult
from pyrmq_core.protocol.payload import Payload

# A caller that never has to wait lets others run this often.
CALLS_BETWEEN_CHECKPOINTS: Final = 64


class PendingSend:
    """One message under way."""

    __slots__ = ("_callbacks", "_error", "_result", "_waited", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._waited: trio.Event | None = None
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
        if self._error is not None:
            raise self._error
        assert self._result is not None, "the send is still under way"
        return self._result

    @property
    def error(self) -> RocketMQError | None:
        """What an ended send failed with."""
        return self._error

    def set_result(self, result: SendResult) -> None:
        self._result = result
        self._end()

    def set_error(self, error: RocketMQError) -> None:
        self._error = error
        self._end()

    def _end(self) -> None:
        self.is_done = True
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
    """Bounds sends under way by count and by bytes; who comes first is let in first."""

    def __init__(self, nursery: trio.Nursery, max_count: int, max_bytes: int) -> None:
        self._nursery = nursery
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        self._calls = 0
        self._turn = trio.Lock()
        self._ended: trio.Event | None = None

    async def enter(self, size: int, *, wait: bool = True) -> None:
        """Waits for room for so many bytes, first come first served; `WindowFull` instead, when `wait` is false."""
        if self._turn.locked() or not self._has_room(size):
            if not wait:
                raise WindowFull(
                    f"{self._count} messages and {self._bytes} bytes are under way, and {self._max_count} and "
                    f"{self._max_bytes} may be (max_in_flight, max_in_flight_bytes); wait for some of them"
                )
            async with self._turn:
                while not self._has_room(size):
                    await self._next_end()
                self._take(size)
            return
        self._take(size)
        self._calls += 1
        if not self._calls % CALLS_BETWEEN_CHECKPOINTS:
            try:
                await trio.lowlevel.checkpoint()
            except BaseException:
                self.leave(size)
                raise

    def leave(self, size: int) -> None:
        self._count -= 1
        self._bytes -= size
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.set()

    def start(self, sender: Sender, payload: Payload, to: Target, timeout: float) -> PendingSend:
        """Sends in the background what has entered."""
        pending = PendingSend()
        self._nursery.start_soon(self._send, sender, payload, to, timeout, pending)
        return pending

    async def drain(self) -> None:
        """Waits until nothing is under way."""
        while self._count:
            await self._next_end()

    async def _send(self, sender: Sender, payload: Payload, to: Target, timeout: float, pending: PendingSend) -> None:
        try:
            receipt = await sender.send(payload, to, timeout=timeout, mode=CommunicationMode.ASYNC)
            pending.set_result(receipt.results()[0])
        except RocketMQError as error:
            pending.set_error(error)
        finally:
            if not pending.is_done:
                pending.set_error(given_up(payload.topic))

    async def _next_end(self) -> None:
        if self._ended is None:
            self._ended = trio.Event()
        await self._ended.wait()

    def _take(self, size: int) -> None:
        self._count += 1
        self._bytes += size

    def _has_room(self, size: int) -> bool:
        """A payload larger than the bound goes when it is alone."""
        return self._count == 0 or (self._count < self._max_count and self._bytes + size <= self._max_bytes)


def given_up(topic: str) -> SendFailed:
    """What a send ends with that was under way when its producer was closed."""
    return SendFailed(
        f"the producer was closed while a message for {topic} was under way; sending it again may store a second copy",
        outcome=Outcome.PERHAPS_STORED,
        attempts=(),
    )
