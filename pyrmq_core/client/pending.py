"""Sends that nobody waits for yet: `PendingSend`, and the bound on how many may be under way."""

from __future__ import annotations

from collections.abc import Callable

import trio

from pyrmq_core.client.sending import Sender
from pyrmq_core.client.targets import Target
from pyrmq_core.errors import InvalidArgument, Outcome, RocketMQError, SendFailed
from pyrmq_core.model import SendResult
from pyrmq_core.protocol.payload import Payload


class PendingSend:
    """One message under way."""

    __slots__ = ("_callbacks", "_done", "_error", "_result")

    def __init__(self) -> None:
        self._done = trio.Event()
        self._result: SendResult | None = None
        self._error: RocketMQError | None = None
        self._callbacks: list[Callable[[PendingSend], None]] = []

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    async def wait(self) -> SendResult:
        """The acknowledgement; raises what the send failed with, each time it is asked."""
        await self._done.wait()
        return self.result

    def add_done_callback(self, callback: Callable[[PendingSend], None]) -> None:
        """Called on the loop when the send ends, at once when it has ended."""
        if self.is_done:
            callback(self)
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
        self._done.set()
        for callback in self._callbacks:
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
        self._turn = trio.Lock()
        self._ended = trio.Event()

    async def start(self, sender: Sender, payload: Payload, to: Target, timeout: float) -> PendingSend:
        """Waits for room, first come first served, then sends in the background."""
        size = len(payload.body)
        async with self._turn:
            while not self._has_room(size):
                await self._ended.wait()
            self._count += 1
            self._bytes += size
        pending = PendingSend()
        self._nursery.start_soon(self._send, sender, payload, to, timeout, pending)
        return pending

    async def drain(self) -> None:
        """Waits until nothing is under way."""
        while self._count:
            await self._ended.wait()

    async def _send(self, sender: Sender, payload: Payload, to: Target, timeout: float, pending: PendingSend) -> None:
        try:
            receipt = await sender.send(payload, to, timeout=timeout)
            pending.set_result(receipt.results()[0])
        except RocketMQError as error:
            pending.set_error(error)
        finally:
            if not pending.is_done:
                pending.set_error(_given_up(payload.topic))
            self._count -= 1
            self._bytes -= len(payload.body)
            ended, self._ended = self._ended, trio.Event()
            ended.set()

    def _has_room(self, size: int) -> bool:
        """A payload larger than the bound goes when it is alone."""
        return self._count == 0 or (self._count < self._max_count and self._bytes + size <= self._max_bytes)


def _given_up(topic: str) -> SendFailed:
    return SendFailed(
        f"the producer was closed while a message for {topic} was under way; sending it again may store a second copy",
        outcome=Outcome.PERHAPS_STORED,
        attempts=(),
    )
