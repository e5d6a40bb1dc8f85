"""The blocking `PushConsumer`: handlers run in separate threads, and `run` waits in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from pyrmq_core.blocking.client import Client, OwnerFace
from pyrmq_core.blocking.face import blocking_form_of_function
from pyrmq_core.blocking.stop_signals import StopSignals
from pyrmq_core.client.consumer.consume.delivery import Deliveries as AsyncDeliveries
from pyrmq_core.client.consumer.consume.delivery import Delivery as AsyncDelivery
from pyrmq_core.client.consumer.consume.handler_calls import HANDLING, Handler, is_async, stop_consumer
from pyrmq_core.client.consumer.member_settings import PushSettings
from pyrmq_core.client.consumer.push_consumer import PushConsumer as AsyncPushConsumer
from pyrmq_core.client.consumer.running_member import LEAVING_SECONDS
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.service_state import ServiceState
from pyrmq_core.errors import InvalidArgument, InvalidState
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import MessageExt, MessageQueue, Problem
from pyrmq_core.protocol.shown_values import shown

R = TypeVar("R")


class PushConsumer(OwnerFace[AsyncPushConsumer]):
    """The blocking `pyrmq_core.PushConsumer`. `client` is a blocking `Client`. Safe to use from many threads.

    Use it as `with PushConsumer("audit", nameserver=...) as consumer:`, then `consumer.subscribe("orders")` and
    `consumer.run(handler)`. A child after `fork` has the same subscriptions, and is another member of the group.
    """

    @parameters_of(PushSettings[Client])
    def __init__(self, settings: PushSettings[Client]) -> None:
        super().__init__(AsyncPushConsumer, settings)
        self.group = settings.group
        self._stop_seconds = settings.stop_timeout
        self._subscribed: dict[str, tuple[str, str | None]] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and self._service_state() is ServiceState.RUNNING:
            self.stop(0)
        self.close()  # leaves the group in order after a failure too, so that offsets are stored

    def _opened_now(self, opened: HeldContext[AsyncPushConsumer]) -> None:
        for topic, (tags, sql) in self._subscribed.items():  # subscribes again in a child after `fork`
            portal().run(_subscribe, opened.value, topic, tags, sql)

    def _closing_seconds(self, opened: HeldContext[AsyncPushConsumer]) -> float:
        return self._stop_seconds + LEAVING_SECONDS

    def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Subscribes to a topic, or changes its subscription. A running consumer reports it to its brokers at once.

        `tags` is "*" or "TagA || TagB". `sql` is an SQL92 expression over properties instead. If the topic's brokers
        are known, one of them checks the expression now. Raises `ResponseError` if it cannot evaluate the expression.
        """
        self._run(lambda consumer: consumer.subscribe(topic, tags=tags, sql=sql))
        self._subscribed[topic] = (tags, sql)

    def unsubscribe(self, topic: str) -> None:
        """Ends the subscription. Messages that no handler has yet are left to the group's other members."""
        self._run(lambda consumer: consumer.unsubscribe(topic))
        self._subscribed.pop(topic, None)

    def run(self, handler: Handler, *, orderly: bool = False) -> None:
        """Consumes until `stop`: calls `handler(messages)` in up to `consume_threads` threads.

        Messages are acknowledged when the handler returns, and delivered again if it raises, as
        `pyrmq_core.PushConsumer.run` says. In the main thread Ctrl-C, SIGTERM and SIGHUP stop it as `stop` does:
        pulling ends, running handlers have `stop_timeout` seconds to finish, offsets are stored, and the consumer
        leaves the group. Then `KeyboardInterrupt` or `SystemExit` is raised. A second signal raises it at once.
        """
        if is_async(handler):
            raise InvalidArgument(
                f"handler={shown(handler)}: it is an async function, and the blocking consumer calls plain ones; the "
                "PushConsumer of pyrmq_core.aio takes it under asyncio, that of pyrmq_core under trio"
            )
        consumer, loop = self._async(), portal()
        with StopSignals(lambda: loop.submit(consumer.stop)):
            self._run(lambda consumer: consumer.run(handler, orderly=orderly))

    def stop(self, timeout: float | None = None) -> None:
        """Ends `run` or the iteration, and waits until it has ended. In a handler it returns at once.

        No more messages are pulled. Running handlers have `timeout` seconds (`stop_timeout` by default) to finish, then
        their messages are delivered again. Then the consumer stores its offsets and leaves the group. It may be called
        from any thread.
        """
        portal().run(stop_consumer, self._async(), timeout, self._is_handler())

    def close(self) -> None:
        """Stops the consumer and leaves the group. A second call does nothing. Raises `InvalidState` in a handler."""
        if self._is_handler():
            raise InvalidState(f"a handler of {self!r} cannot close it; call stop, which makes `run` return")
        super().close()

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer reads now."""
        return self._on_loop(lambda consumer: consumer.assigned_queues)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Background requests of this consumer and its client that failed twice or more in a row, and are retried."""
        return self._on_loop(lambda consumer: consumer.problems)

    def __iter__(self) -> Deliveries:
        return self.deliveries()

    def deliveries(self, *, orderly: bool = False) -> Deliveries:
        """Returns an iterator of deliveries, until `stop`: `with delivery as message:` acknowledges a message.

        Up to `consume_threads` deliveries are open at once, with `orderly` only one for each queue. A message whose
        block did not begin or end before `stop` is delivered again.
        """
        return Deliveries(self._on_loop(lambda consumer: consumer.deliveries(orderly=orderly)))

    resume = blocking_form_of_function(AsyncPushConsumer.resume)
    suspend = blocking_form_of_function(AsyncPushConsumer.suspend)

    def _is_handler(self) -> bool:
        opened = self._opened
        return opened is not None and opened.is_open and HANDLING.get() is opened.value

    def _on_loop(self, call: Callable[[AsyncPushConsumer], R]) -> R:

        async def made(consumer: AsyncPushConsumer) -> R:
            return call(consumer)

        return self._run(made)


async def _subscribe(consumer: AsyncPushConsumer, topic: str, tags: str, sql: str | None) -> None:
    await consumer.subscribe(topic, tags=tags, sql=sql)


class Delivery:
    """One received message, for `with delivery as message:`. It is acknowledged when the block ends.

    If the block raises an exception, the message is delivered again.
    """

    def __init__(self, delivery: AsyncDelivery) -> None:
        self._delivery = delivery
        self.message = delivery.message

    def __enter__(self) -> MessageExt:
        return portal().run(self._delivery.__aenter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return portal().run(self._delivery.__aexit__, kind, error, traceback)


class Deliveries:
    """The iterator of a consumer's deliveries, which ends with the consumer's `stop`. Safe to use from many threads."""

    def __init__(self, deliveries: AsyncDeliveries) -> None:
        self._deliveries = deliveries

    def __iter__(self) -> Deliveries:
        return self

    def __next__(self) -> Delivery:
        delivery = portal().run(self._next)
        if delivery is None:
            raise StopIteration
        return Delivery(delivery)

    async def _next(self) -> AsyncDelivery | None:
        return await anext(self._deliveries, None)
