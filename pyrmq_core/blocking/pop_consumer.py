"""The blocking `PopConsumer`, and its deliveries. Handlers run in separate threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import TypeVar

from pyrmq_core.blocking.client import Client, OwnerFace
from pyrmq_core.blocking.face import blocking_form
from pyrmq_core.blocking.stop_signals import StopSignals
from pyrmq_core.client.consumer.consume.handler_calls import HANDLING, is_async, stop_consumer
from pyrmq_core.client.consumer.pop.delivery import PopDelivery as AsyncPopDelivery
from pyrmq_core.client.consumer.pop.receiving import POLL_SECONDS, OutsideReceive
from pyrmq_core.client.consumer.pop.settings import PopSettings
from pyrmq_core.client.consumer.pop_consumer import OneHandler
from pyrmq_core.client.consumer.pop_consumer import PopConsumer as AsyncPopConsumer
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.errors import InvalidArgument, InvalidState, RocketMQError
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import ConsumeFromWhere, MessageExt, Problem
from pyrmq_core.protocol.shown_values import shown

R = TypeVar("R")


class PopDelivery:
    """A popped message, for `with delivery as message:`. It is acknowledged when the block ends.

    If the block raises an exception, the message is given back, and the broker delivers it again. Without a block, call
    either `ack` or `give_back`, once. Safe to use from many threads.
    """

    def __init__(self, delivery: AsyncPopDelivery) -> None:
        self._delivery = delivery
        self.message = delivery.message

    def __enter__(self) -> MessageExt:
        return portal().run(self._delivery.__aenter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return portal().run(self._delivery.__aexit__, kind, error, traceback)

    @property
    def is_settled(self) -> bool:
        """True after the message was acknowledged or given back."""
        return self._delivery.is_settled

    ack = blocking_form(AsyncPopDelivery.ack)
    extend = blocking_form(AsyncPopDelivery.extend)
    give_back = blocking_form(AsyncPopDelivery.give_back)

    def _run(self, call: Callable[[AsyncPopDelivery], Awaitable[R]]) -> R:
        return portal().run(call, self._delivery)


class PopConsumer(OwnerFace[AsyncPopConsumer]):
    """The blocking `pyrmq_core.PopConsumer`. `client` is a blocking `Client`. Safe to use from many threads."""

    @parameters_of(PopSettings[Client])
    def __init__(self, settings: PopSettings[Client]) -> None:
        super().__init__(AsyncPopConsumer, settings)
        self.group = settings.group
        self._closing = settings.stop_timeout + settings.timeout

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and self._opened is not None and self._opened.is_open:
            self.stop(0)
        self.close()

    def _closing_seconds(self, opened: HeldContext[AsyncPopConsumer]) -> float:
        return self._closing

    def receive(
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
            return [PopDelivery(delivery) for delivery in self._run(receive.run)]
        except RocketMQError:
            raise
        except BaseException:  # an interrupt, such as Ctrl-C
            portal().run(receive.leave)
            raise

    def subscribe_lite(
        self, topic: str, lite_topics: str | Iterable[str], *, start: ConsumeFromWhere | int | None = None
    ) -> None:
        self._run(lambda consumer: consumer.subscribe_lite(topic, lite_topics, start=start))

    def unsubscribe_lite(self, topic: str, lite_topics: str | Iterable[str]) -> None:
        self._run(lambda consumer: consumer.unsubscribe_lite(topic, lite_topics))

    def lite_topics(self, topic: str) -> frozenset[str]:
        return self._run(lambda consumer: consumer.lite_topics(topic))

    receive.__doc__ = AsyncPopConsumer.receive.__doc__
    subscribe_lite.__doc__ = AsyncPopConsumer.subscribe_lite.__doc__
    unsubscribe_lite.__doc__ = AsyncPopConsumer.unsubscribe_lite.__doc__
    lite_topics.__doc__ = AsyncPopConsumer.lite_topics.__doc__

    def run(
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
        """Receives messages until `stop`, and calls `handler(message)` in up to `at_once` threads.

        A message is acknowledged when the handler returns, and delivered again if it raises, as
        `pyrmq_core.PopConsumer.run` says. In the main thread Ctrl-C, SIGTERM and SIGHUP stop it: running handlers have
        `stop_timeout` seconds to finish. Then `KeyboardInterrupt` or `SystemExit` is raised. A second signal raises it
        at once.
        """
        if is_async(handler):
            raise InvalidArgument(
                f"handler={shown(handler)}: it is an async function, and the blocking consumer calls plain ones; the "
                "PopConsumer of pyrmq_core.aio takes it under asyncio, that of pyrmq_core under trio"
            )
        consumer, loop = self._async(), portal()
        with StopSignals(lambda: loop.submit(consumer.stop)):
            self._run(
                lambda consumer: consumer.run(
                    topic, handler, at_once=at_once, invisible=invisible, tags=tags, sql=sql, order=order, lite=lite
                )
            )

    def stop(self, timeout: float | None = None) -> None:
        """Ends every `run`, and waits until all have ended. In a handler it returns at once.

        No more messages are received. Running handlers have `timeout` seconds (`stop_timeout` by default) to finish,
        then the broker delivers their messages again at once. It may be called from any thread.
        """
        portal().run(stop_consumer, self._async(), timeout, self._is_handler())

    def close(self) -> None:
        """Stops the consumer. A second call does nothing. Raises `InvalidState` in a handler."""
        if self._is_handler():
            raise InvalidState(f"a handler of {self!r} cannot close it; call stop, which makes `run` return")
        super().close()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Background requests of this consumer and its client that failed twice or more in a row, and are retried."""

        async def read(consumer: AsyncPopConsumer) -> tuple[Problem, ...]:
            return consumer.problems

        return self._run(read)

    def _is_handler(self) -> bool:
        opened = self._opened
        return opened is not None and opened.is_open and HANDLING.get() is opened.value
