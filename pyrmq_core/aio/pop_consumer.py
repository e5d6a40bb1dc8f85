"""The asyncio `PopConsumer`, and its deliveries. Coroutine handlers run on the asyncio loop that awaits `run`."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import partial
from types import TracebackType

from pyrmq_core.aio.client import Client, OwnerFace
from pyrmq_core.aio.face import asyncio_form
from pyrmq_core.aio.loop_returns import here, on_library_loop
from pyrmq_core.aio.push_consumer import HandlerOnLoop
from pyrmq_core.client.async_only import AsyncOnly
from pyrmq_core.client.consumer.consume.handler_calls import HANDLING, is_async, stop_consumer
from pyrmq_core.client.consumer.pop.delivery import PopDelivery as TrioPopDelivery
from pyrmq_core.client.consumer.pop.receiving import POLL_SECONDS, OutsideReceive
from pyrmq_core.client.consumer.pop.settings import PopSettings
from pyrmq_core.client.consumer.pop_consumer import OneHandler
from pyrmq_core.client.consumer.pop_consumer import PopConsumer as TrioPopConsumer
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.service_state import ServiceState
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import MessageExt, Problem


class PopDelivery(AsyncOnly):
    """A popped message, for `async with delivery as message:`. It is acknowledged when the block ends.

    If the block raises an exception, the message is given back, and the broker delivers it again. Without a block, call
    either `ack` or `give_back`, once.
    """

    def __init__(self, delivery: TrioPopDelivery) -> None:
        self._delivery = delivery
        self.message = delivery.message

    async def __aenter__(self) -> MessageExt:
        return await on_library_loop(self._delivery.__aenter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return await on_library_loop(partial(self._delivery.__aexit__, kind, error, traceback))

    @property
    def is_settled(self) -> bool:
        """True after the message was acknowledged or given back."""
        return self._delivery.is_settled

    async def ack(self) -> None:
        await on_library_loop(self._delivery.ack)

    async def extend(self, seconds: float) -> None:
        await on_library_loop(partial(self._delivery.extend, seconds))

    async def give_back(self, delay: float | None = None) -> None:
        await on_library_loop(partial(self._delivery.give_back, delay))

    def _extend_on(self, seconds: float) -> Future[None]:
        """Extends the message's invisible time by `seconds`, again and again until it is acknowledged or given back.

        It runs on the library's loop, so it works even while a task blocks the asyncio loop.
        """
        return portal().submit(self._delivery._extend_on, seconds)

    ack.__doc__ = TrioPopDelivery.ack.__doc__
    extend.__doc__ = TrioPopDelivery.extend.__doc__
    give_back.__doc__ = TrioPopDelivery.give_back.__doc__


class PopConsumer(OwnerFace[TrioPopConsumer]):
    """The asyncio form of `pyrmq_core.PopConsumer`. `client` is an asyncio `Client`."""

    @parameters_of(PopSettings[Client])
    def __init__(self, settings: PopSettings[Client]) -> None:
        self.group = settings.group
        self._closing = settings.stop_timeout + settings.timeout
        super().__init__(TrioPopConsumer, settings)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is not None and self._service_state() is ServiceState.RUNNING:
                await self.stop(0)
        finally:
            await self.close()

    def _closing_seconds(self, held: HeldContext[TrioPopConsumer]) -> float:
        return self._closing

    async def receive(
        self,
        topic: str,
        max_messages: int = 1,
        invisible: float = 60.0,
        wait: float = POLL_SECONDS,
        *,
        tags: str = "*",
        sql: str | None = None,
        order: bool = False,
        lite: bool = False,
    ) -> list[PopDelivery]:
        receive = OutsideReceive(
            lambda consumer: consumer.receive(
                topic, max_messages, invisible, wait, tags=tags, sql=sql, order=order, lite=lite
            )
        )
        try:
            return [PopDelivery(delivery) for delivery in await self._run(receive.run)]
        except asyncio.CancelledError:
            await on_library_loop(receive.leave)
            raise

    receive.__doc__ = TrioPopConsumer.receive.__doc__

    async def run(
        self,
        topic: str,
        handler: OneHandler,
        *,
        at_once: int = 32,
        invisible: float = 60.0,
        tags: str = "*",
        sql: str | None = None,
        order: bool = False,
        lite: bool = False,
    ) -> None:
        """Receives messages until `stop`, and calls `handler(message)` for up to `at_once` messages at a time.

        A coroutine function runs in tasks of this asyncio loop, any other function in worker threads. A message is
        acknowledged when the handler returns, and delivered again if it raises, as `pyrmq_core.PopConsumer.run` says.
        """
        consumer = await self._async()
        if is_async(handler):
            handler = HandlerOnLoop(handler, here(), portal(), consumer).handle
        await on_library_loop(
            partial(
                consumer.run,
                topic,
                handler,
                at_once=at_once,
                invisible=invisible,
                tags=tags,
                sql=sql,
                order=order,
                lite=lite,
            )
        )

    async def stop(self, timeout: float | None = None) -> None:
        await on_library_loop(stop_consumer, await self._async(), timeout, self._is_handler())

    stop.__doc__ = TrioPopConsumer.stop.__doc__

    async def close(self) -> None:
        """Stops the consumer. A second call does nothing. Raises `InvalidState` in a handler."""
        if self._is_handler():
            raise InvalidState(f"a handler of {self!r} cannot close it; await stop(), which makes `run` return")
        await super().close()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Background requests of this consumer and its client that failed twice or more in a row, and are retried."""
        held = self._held
        return held.value.problems if held is not None and held.has_opened else ()

    lite_topics = asyncio_form(TrioPopConsumer.lite_topics)
    subscribe_lite = asyncio_form(TrioPopConsumer.subscribe_lite)
    unsubscribe_lite = asyncio_form(TrioPopConsumer.unsubscribe_lite)

    def _is_handler(self) -> bool:
        held = self._held
        return held is not None and held.is_open and HANDLING.get() is held.value
