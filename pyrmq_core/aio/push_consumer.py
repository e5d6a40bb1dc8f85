"""The asyncio `PushConsumer`: coroutine handlers run on the asyncio loop that awaits `run`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial
from types import TracebackType
from typing import Any

from pyrmq_core.aio.client import Client, OwnerFace
from pyrmq_core.aio.deliveries import Deliveries
from pyrmq_core.aio.face import asyncio_form, asyncio_form_of_function
from pyrmq_core.aio.loop_returns import LoopReturns, here, on_library_loop
from pyrmq_core.aio.user_calls import UserCall
from pyrmq_core.client.consumer.consume.delivery import Deliveries as TrioDeliveries
from pyrmq_core.client.consumer.consume.handler_calls import HANDLING, Handler, Stoppable, is_async, stop_consumer
from pyrmq_core.client.consumer.member_settings import PushSettings
from pyrmq_core.client.consumer.push_consumer import PushConsumer as TrioPushConsumer
from pyrmq_core.client.consumer.running_member import LEAVING_SECONDS
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.service_state import ServiceState
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import HeldContext, Portal, portal
from pyrmq_core.model import MessageQueue, Problem

log = logging.getLogger(__name__)


class PushConsumer(OwnerFace[TrioPushConsumer]):
    """The asyncio form of `pyrmq_core.PushConsumer`. `client` is an asyncio `Client`.

    Use it as `async with PushConsumer("audit", nameserver=...) as consumer:`, then `await consumer.subscribe("orders")`
    and `await consumer.run(handler)`, or `async for delivery in consumer`.
    """

    @parameters_of(PushSettings[Client])
    def __init__(self, settings: PushSettings[Client]) -> None:
        self.group = settings.group
        self._stop_seconds = settings.stop_timeout
        super().__init__(TrioPushConsumer, settings)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is not None and self._service_state() is ServiceState.RUNNING:
                await self.stop(0)
        finally:
            await self.close()  # leaves the group in order after a failure too, so that offsets are stored

    def _closing_seconds(self, held: HeldContext[TrioPushConsumer]) -> float:
        return self._stop_seconds + LEAVING_SECONDS

    async def run(self, handler: Handler, *, orderly: bool = False) -> None:
        """Consumes until `stop`: calls `handler(messages)` with 1 to `consume_message_batch_max_size` messages.

        A coroutine function runs in tasks of this asyncio loop, any other function in worker threads. Up to
        `consume_threads` calls run at once. Messages are acknowledged when the handler returns, and delivered again if
        it raises, as `pyrmq_core.PushConsumer.run` says. When the call is cancelled, handlers are cancelled too, and
        acknowledged offsets are stored.
        """
        consumer = await self._async()
        if is_async(handler):
            handler = HandlerOnLoop(handler, here(), portal(), consumer).handle
        await on_library_loop(partial(consumer.run, orderly=orderly), handler)

    async def stop(self, timeout: float | None = None) -> None:
        """Ends `run` or the iteration, and waits until it has ended. In a handler it returns at once.

        No more messages are pulled. Running handlers have `timeout` seconds (`stop_timeout` by default) to finish, then
        they are cancelled and their messages are delivered again. Then the consumer stores its offsets and leaves the
        group.
        """
        await on_library_loop(stop_consumer, await self._async(), timeout, self._is_handler())

    async def close(self) -> None:
        """Stops the consumer and leaves the group. A second call does nothing. Raises `InvalidState` in a handler."""
        if self._is_handler():
            raise InvalidState(f"a handler of {self!r} cannot close it; await stop(), which makes `run` return")
        await super().close()

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer reads now. There are none before it is open."""
        held = self._held
        return held.value.assigned_queues if held is not None and held.has_opened else ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Background requests of this consumer and its client that failed twice or more in a row, and are retried."""
        held = self._held
        return held.value.problems if held is not None and held.has_opened else ()

    def __aiter__(self) -> Deliveries:
        return self.deliveries()

    def deliveries(self, *, orderly: bool = False) -> Deliveries:
        """Returns an iterator of deliveries, until `stop`: `async with delivery as message:` acknowledges a message.

        Up to `consume_threads` deliveries are open at once, with `orderly` only one for each queue. A message whose
        block did not begin or end before `stop` is delivered again. Cancelling the wait for the next delivery, such as
        by `asyncio.timeout`, loses no message.
        """

        async def made(consumer: TrioPushConsumer) -> TrioDeliveries:
            return consumer.deliveries(orderly=orderly)

        async def begin() -> Future[TrioDeliveries]:
            return portal().submit(made, await self._async())

        return Deliveries(begin)

    resume = asyncio_form_of_function(TrioPushConsumer.resume)
    subscribe = asyncio_form(TrioPushConsumer.subscribe)
    suspend = asyncio_form_of_function(TrioPushConsumer.suspend)
    unsubscribe = asyncio_form(TrioPushConsumer.unsubscribe)

    def _is_handler(self) -> bool:
        held = self._held
        return held is not None and held.is_open and HANDLING.get() is held.value


class HandlerOnLoop:
    """A user's coroutine handler, called in tasks of an asyncio loop. The consumer stops when that loop closes."""

    def __init__(self, handler: Callable[..., Any], returns: LoopReturns, loop: Portal, consumer: Stoppable) -> None:
        self._handler = handler
        self._returns = returns
        self._loop = loop
        self._consumer = consumer
        self._context: Context = copy_context()
        self._context.run(HANDLING.set, consumer)

    async def handle(self, received: Any) -> object:
        call: UserCall[object] = UserCall(self._returns, self._loop, self._context_here())
        try:
            return await call.call(self._handler, received)
        finally:
            if self._returns.loop.is_closed():
                log.error("%r stops: the asyncio loop of its handler was closed before it", self._consumer.group)
                await stop_consumer(self._consumer, 0, is_handler=True)

    def _context_here(self) -> Context:
        """Returns the context variables of `run`, with those that hooks changed in this task, such as a span."""
        context = self._context.copy()
        for variable, value in copy_context().items():
            if context.get(variable) is not value:
                context.run(variable.set, value)
        return context
