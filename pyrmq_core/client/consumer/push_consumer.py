"""`PushConsumer`: consumes topics as a member of a group (client/consumer/DefaultMQPushConsumer.java)."""

from __future__ import annotations

import math
from contextlib import AsyncExitStack
from typing import Any

import trio

from pyrmq_core.client.client import Client
from pyrmq_core.client.consumer.consume.delivery import Deliveries
from pyrmq_core.client.consumer.consume.handler_calls import HANDLING, Handler, HandlerCalls
from pyrmq_core.client.consumer.consume.intake import Gate
from pyrmq_core.client.consumer.consume.message_trace import ConsumerTracer
from pyrmq_core.client.consumer.group.membership import PASSIVELY, Membership
from pyrmq_core.client.consumer.group.subscriptions import Filter, check_subscribed_topic, filter_of
from pyrmq_core.client.consumer.member_settings import PushSettings
from pyrmq_core.client.consumer.running_push import RunningPushConsumer
from pyrmq_core.client.consumer.sql_checks import check_at_first_broker
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.producer.trace_dispatcher import CONSUME, open_tracing
from pyrmq_core.client.session_owner import SessionOwner
from pyrmq_core.errors import InvalidState
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageModel, MessageQueue, Problem
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.messages.names import RETRY_PREFIX
from pyrmq_core.protocol.messages.namespaces import with_namespace


class PushConsumer(SessionOwner[PushSettings[Any]]):
    """A member of a consumer group that pulls its queues, and passes each message to a handler.

    `async with PushConsumer("audit", nameserver="127.0.0.1:9876") as consumer:` opens a client of its own, and with
    `client=` it shares one. Subscribe first. Then `run` a handler or iterate over deliveries, only once for each
    consumer.
    """

    _KIND = "consumer"

    @parameters_of(PushSettings[Client])
    def __init__(self, settings: PushSettings[Client]) -> None:
        self._begin(settings, settings.shared_client(Client, "pyrmq_core.Client"))

    def _configure(self) -> None:
        settings = self._settings
        self.group = settings.group
        self._wrapped_group = with_namespace(self.group, settings.namespace)
        self._membership = Membership(
            self._session, self._wrapped_group, PASSIVELY, settings.message_model, settings.consume_from_where
        )
        self._gate = Gate()
        self._running: RunningPushConsumer | None = None
        self._stop_requested = trio.Event()
        self._stop_timeout = settings.stop_timeout
        self._ended = trio.Event()
        self._has_run = False
        self._deliveries: Deliveries | None = None
        self._nursery: trio.Nursery | None = None

    async def _opens(self, stack: AsyncExitStack) -> None:
        self._nursery = await stack.enter_async_context(open_owned_nursery())

    async def _closes(self, *, has_failed: bool) -> None:
        await self.stop(0 if has_failed else None)

    async def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Subscribes to a topic, or changes its subscription. A running consumer reports it to its brokers at once.

        `tags` is "*" or "TagA || TagB". `sql` is an SQL92 expression over properties instead. If the topic's brokers
        are known, one of them checks the expression now. Raises `ResponseError` if it cannot evaluate the expression.
        """
        self._life.check_running()
        wanted = filter_of(tags, sql)
        check_subscribed_topic(topic)
        wrapped = with_namespace(topic, self._settings.namespace)
        if isinstance(wanted, SqlFilter):
            timeout = self._settings.timeout
            await check_at_first_broker(self._session, self._wrapped_group, wrapped, wanted, timeout=timeout)
        await self._subscribe(wrapped, wanted)

    async def unsubscribe(self, topic: str) -> None:
        """Ends the subscription. Messages that no handler has yet are left to the group's other members."""
        self._life.check_running()
        self._membership.unsubscribe(with_namespace(topic, self._settings.namespace))
        if self._running is not None:
            await self._membership.announce()
            self._running.rebalancer.wake()

    async def run(self, handler: Handler, *, orderly: bool = False) -> None:
        """Consumes until `stop`: calls `handler(messages)` with 1 to `consume_message_batch_max_size` messages.

        When the handler returns, they are acknowledged. If it raises, they are delivered again later, up to
        `max_reconsume_times` times, and then moved to the dead-letter topic. `ConsumeLater` chooses the delay. A
        handler that is not async runs in worker threads.

        With `orderly` the messages of a queue come one batch after another in their order. After an exception the same
        messages come again before any other (`SuspendCurrentQueue` chooses when). If the call is cancelled, handlers
        are cancelled too, and the offsets of acknowledged messages are stored.
        """
        self._check_can_run()
        settings = self._settings
        batch_size, seconds = settings.consume_message_batch_max_size, settings.consume_timeout
        calls = HandlerCalls(handler, settings.consume_threads)
        await self._run(calls, orderly=orderly, batch_size=batch_size, consume_timeout=seconds)

    async def stop(self, timeout: float | None = None) -> None:
        """Ends `run` or the iteration, and waits until it has ended. Returns at once if a handler calls it.

        No more messages are pulled. Running handlers have `timeout` seconds (`stop_timeout` by default) to finish.
        After that they are cancelled and their messages are delivered again. Then the offsets are stored, and the
        consumer leaves its group.
        """
        if timeout is not None:
            self._stop_timeout = max(0.0, timeout)
        self._stop_requested.set()
        if self._deliveries is not None:
            self._deliveries.close()
        if self._has_run and HANDLING.get() is not self:
            await self._ended.wait()

    def suspend(self) -> None:
        """Stops pulling. Messages that were pulled are still consumed."""
        self._gate.close()

    def resume(self) -> None:
        """Pulls again after `suspend`."""
        self._gate.open()

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer reads now."""
        return () if self._running is None else self._running.bare_queues(self._running.assigned.queues)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Background requests of this consumer and its client that failed twice or more in a row, and are retried."""
        own = () if self._running is None else self._running.problems.present
        return (*self._session.problems.present, *own)

    def __aiter__(self) -> Deliveries:
        return self.deliveries()

    def deliveries(self, *, orderly: bool = False) -> Deliveries:
        """Returns an iterator of deliveries, until `stop`: `async with delivery as message:` acknowledges a message.

        Up to `consume_threads` deliveries are open at once, with `orderly` only one for each queue. A message whose
        block did not begin, or raised an exception, is delivered again.
        """
        self._check_can_run()
        assert self._nursery is not None
        deliveries = self._deliveries = Deliveries(self._settings.consume_timeout)
        self._nursery.start_soon(self._run_deliveries, deliveries, orderly)
        return deliveries

    async def _run_deliveries(self, deliveries: Deliveries, orderly: bool) -> None:
        try:
            # Exceptions are not logged as warnings: they leave a delivery's block, and the user's code gets them.
            calls = HandlerCalls(deliveries.deliver, self._settings.consume_threads, most_batches=1, warns=False)
            await self._run(calls, orderly=orderly, batch_size=1, consume_timeout=math.inf)
        finally:
            deliveries.end()

    async def _run(self, calls: HandlerCalls, *, orderly: bool, batch_size: int, consume_timeout: float) -> None:
        if self._has_run:
            raise self._runs_once()
        topic = self._settings.trace_topic
        tracer = None if topic is None else ConsumerTracer(topic)
        self._has_run = True
        mark = HANDLING.set(self)  # inherited by the tasks and threads that call the handler
        running: RunningPushConsumer | None = None
        try:
            async with (
                open_owned_nursery() as service_nursery,
                open_tracing(tracer, service_nursery, self._session, self.group, CONSUME),
            ):
                async with open_owned_nursery() as nursery:
                    running = self._new_running(
                        calls, nursery, tracer, orderly=orderly, batch_size=batch_size, consume_timeout=consume_timeout
                    )
                    service_nursery.start_soon(running.service.run)
                    await running.start()
                    self._running = running
                    await self._stop_requested.wait()
                await running.finish_handlers(self._stop_timeout)
        finally:
            HANDLING.reset(mark)
            if running is not None:
                await running.leave()
            self._running = None
            self._ended.set()

    def _new_running(
        self,
        calls: HandlerCalls,
        nursery: trio.Nursery,
        tracer: ConsumerTracer | None,
        *,
        orderly: bool,
        batch_size: int,
        consume_timeout: float,
    ) -> RunningPushConsumer:
        if self._settings.message_model is MessageModel.CLUSTERING:
            self._membership.subscribe(RETRY_PREFIX + self._wrapped_group, TagFilter())
        return RunningPushConsumer(
            self._session,
            self._settings,
            self._wrapped_group,
            self._membership,
            calls,
            nursery,
            self._gate,
            tracer,
            orderly=orderly,
            batch_size=batch_size,
            consume_timeout=consume_timeout,
        )

    def _check_can_run(self) -> None:
        self._life.check_running()
        if self._has_run or self._deliveries is not None:
            raise self._runs_once()

    def _runs_once(self) -> InvalidState:
        return InvalidState(f"consumer {self.group} runs once, and does or did so already; make a new one")

    async def _subscribe(self, topic: str, wanted: Filter) -> None:
        subscription = self._membership.subscribe(topic, wanted)
        if self._running is not None:
            self._running.changed(subscription)
            await self._membership.announce()
            self._running.rebalancer.wake()
