"""The asyncio forms of `pyrmq_core.Deliveries` and `pyrmq_core.Delivery`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType

from pyrmq_core.aio.face import LoopElements
from pyrmq_core.aio.loop_returns import on_library_loop, returned
from pyrmq_core.client.consumer.consume.delivery import Deliveries as TrioDeliveries
from pyrmq_core.client.consumer.consume.delivery import Delivery as TrioDelivery
from pyrmq_core.client.consumer.consume.delivery import is_order
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import portal
from pyrmq_core.model import MessageExt


class Delivery:
    """One received message, for `async with delivery as message:`. It is acknowledged when the block ends.

    If the block raises an exception or is cancelled, the message is delivered again.
    """

    def __init__(self, delivery: TrioDelivery) -> None:
        self._delivery = delivery
        self.message = delivery.message

    async def __aenter__(self) -> MessageExt:
        try:
            return await on_library_loop(self._delivery.__aenter__)
        except asyncio.CancelledError as cancelled:  # the message may have been handed over, but its block does not run
            with suppress(InvalidState):
                portal().soon(self._delivery._settle, cancelled)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        portal().soon(self._delivery._settle, error)  # does not wait, since a wait could be cancelled
        return is_order(error)


class Deliveries:
    """The iterator of a consumer's deliveries, which ends with the consumer's `stop`. Several tasks may iterate."""

    def __init__(self, begin: Callable[[], Awaitable[Future[TrioDeliveries]]]) -> None:
        self._begin = begin
        self._begun: Future[TrioDeliveries] | None = None
        self._elements: LoopElements[TrioDelivery] | None = None

    def __aiter__(self) -> Deliveries:
        return self

    async def __anext__(self) -> Delivery:
        if self._begun is None:
            self._begun = await self._begin()
        deliveries = await returned(self._begun)
        if self._elements is None:
            self._elements = LoopElements(deliveries)
        return Delivery(await self._elements.next())
