"""`Delivery`: one message of an iteration over a consumer, acknowledged at the end of its `async with` block."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import trio

from pyrmq_core.client.consumer.consume.handler_exceptions import (
    TIMEOUT_DELAY_LEVEL,
    ConsumeLater,
    NotHandled,
    SuspendCurrentQueue,
)
from pyrmq_core.errors import InvalidState
from pyrmq_core.model import MessageExt


class Delivery:
    """One received message, for `async with delivery as message:`. It is acknowledged when the block ends.

    If the block raises an exception or is cancelled, the message is delivered again. The exception is then raised to
    the caller, except `ConsumeLater` and `SuspendCurrentQueue`, which only choose when the message is delivered again.
    """

    def __init__(self, message: MessageExt) -> None:
        self.message = message
        self._settled = trio.Event()
        self._reason: BaseException | None = None
        self._is_entered = False
        self._is_closed = False

    async def __aenter__(self) -> MessageExt:
        if self._is_entered or self._settled.is_set():
            raise InvalidState(f"the delivery of {self.message.msg_id} was entered before, or its consumer has stopped")
        self._is_entered = True
        return self.message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._settle(error)
        return is_order(error)

    async def _wait(self) -> None:
        await self._settled.wait()
        if isinstance(self._reason, Exception):
            raise self._reason
        if self._reason is not None:  # the block was cancelled, which must not cancel the consumer
            raise (NotHandled if self._is_closed else ConsumeLater)() from self._reason

    def _abandon(self) -> None:
        self._is_closed = True
        if not self._is_entered:
            self._settle(NotHandled())

    def _settle(self, reason: BaseException | None) -> None:
        self._reason = reason
        self._settled.set()


def is_order(error: BaseException | None) -> bool:
    return isinstance(error, ConsumeLater | SuspendCurrentQueue)


class Deliveries:
    """An iterator of a consumer's deliveries.

    A message whose `async with` block does not end within `timeout` seconds is delivered again.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._send, self._receive = trio.open_memory_channel[Delivery](0)
        self._open: set[Delivery] = set()

    async def deliver(self, messages: Sequence[MessageExt]) -> None:
        """Passes a message to the iterating task, and waits until its block has ended."""
        (message,) = messages  # a batch of several would be acknowledged or delivered again together
        delivery = Delivery(message)
        try:
            await self._send.send(delivery)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            raise NotHandled from None
        self._open.add(delivery)
        try:
            with trio.move_on_after(self._timeout) as scope:
                await delivery._wait()
        except ConsumeLater as later:
            raise ConsumeLater(later.delay_level) from later  # without its `ack_index`
        finally:
            self._open.discard(delivery)
        if scope.cancelled_caught:
            raise ConsumeLater(TIMEOUT_DELAY_LEVEL)

    def __aiter__(self) -> Deliveries:
        return self

    async def __anext__(self) -> Delivery:
        try:
            return await self._receive.__anext__()
        except trio.ClosedResourceError:  # the consumer was stopped
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Ends the iteration now. A message whose `async with` block did not begin is delivered to the group again."""
        self._send.close()
        self._receive.close()
        for delivery in list(self._open):
            delivery._abandon()

    def end(self) -> None:
        """Ends the iteration after the messages that were already passed to it."""
        self._send.close()
