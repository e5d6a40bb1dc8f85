"""`PopConsumer`: any number of workers take single messages of a topic, each invisible to the others for a time.

Source: client/impl/consumer/DefaultMQPushConsumerImpl.java (popMessage), 5.4.0.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import trio

from pyrmq_core.client.arguments import instance_of, whole_number
from pyrmq_core.client.client import Client
from pyrmq_core.client.consumer.consume.handler_calls import HANDLING, Handler, HandlerCalls, Messages, is_async
from pyrmq_core.client.consumer.group.subscriptions import check_subscribed_topic, filter_of
from pyrmq_core.client.consumer.pop.delivery import PopDelivery
from pyrmq_core.client.consumer.pop.lite_subscriptions import LiteSubscriptions
from pyrmq_core.client.consumer.pop.receiving import POLL_SECONDS, Receiving
from pyrmq_core.client.consumer.pop.requests import PopOptions, PopRequests
from pyrmq_core.client.consumer.pop.running_pop import RunningPop
from pyrmq_core.client.consumer.pop.settings import PopSettings, check_wait, invisible_ms, lite_names, lite_start
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.session_owner import SessionOwner
from pyrmq_core.errors import InvalidArgument, InvalidState
from pyrmq_core.model import ConsumeFromWhere, MessageExt, Problem
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.messages.namespaces import with_namespace
from pyrmq_core.protocol.requests.pop.pop_message import MOST_MESSAGES
from pyrmq_core.protocol.shown_values import shown

log = logging.getLogger(__name__)

OneHandler = Callable[[MessageExt], Awaitable[object]] | Callable[[MessageExt], object]

MOST_AT_ONCE = 1000


class PopConsumer(SessionOwner[PopSettings[Any]]):
    """A consumer that takes single messages, as one of any number of workers of its group. No worker owns a queue.

    A message that it takes is invisible to the other workers for a time. If it is not acknowledged by then, it comes
    again, to any worker. So a slow message delays no other message. The consumer needs brokers of 5.0 or later, and
    does not work through a proxy, whose remoting port refuses pops (5.4.0). It sends no heartbeats, so brokers do not
    list it as a member.

    `async with PopConsumer("workers", nameserver="127.0.0.1:9876") as consumer:` opens a client of its own, and with
    `client=` it shares one. With a shared client, a request that still waits at a broker when this consumer ends may
    take messages. They come again when their invisible time ends.
    """

    _KIND = "consumer"

    @parameters_of(PopSettings[Client])
    def __init__(self, settings: PopSettings[Client]) -> None:
        self._begin(settings, settings.shared_client(Client, "pyrmq_core.Client"))

    def _configure(self) -> None:
        self.group = self._settings.group
        self._stop_timeout = self._settings.stop_timeout
        self._problems = Problems(log)
        self._runs: dict[trio.CancelScope, trio.Event] = {}
        self._is_stopped = False
        self._requests: PopRequests | None = None
        self._receiving: Receiving | None = None
        self._lite: LiteSubscriptions | None = None

    async def _opens(self, stack: AsyncExitStack) -> None:
        nursery = await stack.enter_async_context(open_owned_nursery())
        group = with_namespace(self.group, self._settings.namespace)
        self._requests = PopRequests(self._session, self._settings, group, nursery)
        self._receiving = Receiving(self._requests, self._settings, nursery)
        timeout = self._settings.timeout
        self._lite = LiteSubscriptions(self._session, self._requests, group, timeout, nursery, self._problems)

    async def _closes(self, *, has_failed: bool) -> None:
        await self.stop(0 if has_failed else None)
        if self._lite is not None:
            await self._lite.close()
        if self._requests is not None:
            await self._requests.finish()

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
        """Receives up to `max_messages` messages (32 at most), or returns an empty list after `wait` seconds.

        Each message has to be acknowledged within `invisible` seconds, or comes again: see `PopDelivery`. `tags` is "*"
        or "TagA || TagB", `sql` an SQL92 expression over properties instead. With `order` the broker returns messages
        of a queue in their order, and later ones only after these are acknowledged or visible again. With `lite` the
        result has messages of the lite topics of `topic` to which this consumer subscribes (`subscribe_lite`), each in
        its order.

        A message that came again `max_reconsume_times` times, and failed or was never acknowledged, moves to the
        dead-letter topic. If the call is cancelled, its messages come again at once. Raises `NoRoute` for an unknown
        topic, and `ResponseError` if a broker refuses (with code 3 if it is older than 5.0).
        """
        whole_number("max_messages", max_messages, 1, MOST_MESSAGES)
        wanted = self._options(topic, max_messages, invisible, tags, sql, order=order, lite=lite)
        seconds = check_wait("wait", wait)
        return await self._opened().receive(await self._with_client(wanted, lite=lite), seconds)

    async def subscribe_lite(
        self, topic: str, lite_topics: str | Iterable[str], *, start: ConsumeFromWhere | int | None = None
    ) -> None:
        """Subscribes to lite topics of `topic`. With `lite=True`, `receive` and `run` take their messages from now on.

        It needs brokers of 5.5, and a group whose attribute `lite.bind.topic` names the topic. `start` moves the
        group's offset in each lite topic: to the FIRST_OFFSET, the LAST_OFFSET, or a number. With None the offset does
        not change. After a broker's restart its messages may come up to 30 s late. Raises `ResponseError` if a broker
        refuses, with code 2018 if it has too many subscriptions.
        """
        check_subscribed_topic(topic)
        names, first = lite_names(lite_topics), lite_start(start)
        await self._subscriptions().add(with_namespace(topic, self._settings.namespace), names, first)

    async def unsubscribe_lite(self, topic: str, lite_topics: str | Iterable[str]) -> None:
        """Ends subscriptions to lite topics. Received messages may still be acknowledged."""
        check_subscribed_topic(topic)
        names = lite_names(lite_topics)
        await self._subscriptions().remove(with_namespace(topic, self._settings.namespace), names)

    async def lite_topics(self, topic: str) -> frozenset[str]:
        """Returns the lite topics of `topic` to which this consumer subscribes.

        In a group with `lite.sub.model=Exclusive`, a lite topic moves to the consumer that subscribed to it last.
        """
        return self._subscriptions().names(with_namespace(topic, self._settings.namespace))

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
        """Receives messages until `stop`, and calls `handler(message)` for up to `at_once` of them at a time.

        When the handler returns, the message is acknowledged. If it raises, the message is delivered again after a
        delay that grows from 10 seconds to 2 hours (`ConsumeLater` chooses another). After `max_reconsume_times` times
        the message moves to the dead-letter topic. While the handler works the message stays invisible, up to
        `consume_timeout` seconds. A handler that is not async runs in worker threads.

        With `order` the messages of a queue are handled one after another, and a failed one comes again before later
        ones. With `lite` the handler gets messages of the lite topics of `topic` to which this consumer subscribes, in
        order within each. To consume several topics, call `run` for each. Failed requests are repeated. Raises
        `ResponseError` if a broker is older than 5.0 or refuses the filter expression.
        """
        whole_number("at_once", at_once, 1, MOST_AT_ONCE)
        options = self._options(topic, 1, invisible, tags, sql, order=order, lite=lite)
        receiving = self._opened()
        calls = HandlerCalls(_handler_of_lists(handler), at_once)
        if self._is_stopped:
            raise InvalidState(f"consumer {self.group} was stopped; make a new one")

        async def receive(count: int) -> Sequence[PopDelivery]:
            wanted = await self._with_client(replace(options, max_messages=count), lite=lite)
            return await receiving.receive(wanted, POLL_SECONDS)

        timeout, is_ordered = self._settings.consume_timeout, options.order
        running = RunningPop(receive, calls, topic, at_once, invisible, timeout, self._problems, order=is_ordered)
        mark = HANDLING.set(self)  # inherited by the tasks and threads that call the handler
        scope, ended = trio.CancelScope(), trio.Event()
        self._runs[scope] = ended
        try:
            async with open_owned_nursery() as nursery:
                with scope:
                    await running.work(nursery)
                with trio.move_on_after(self._stop_timeout):
                    await running.finish()
        finally:
            HANDLING.reset(mark)
            del self._runs[scope]
            ended.set()

    async def stop(self, timeout: float | None = None) -> None:
        """Ends every `run`, and waits until all have ended. Returns at once if a handler calls it.

        No more messages are received. Running handlers have `timeout` seconds (`stop_timeout` by default) to finish.
        After that they are cancelled, and their messages come again at once.
        """
        if timeout is not None:
            self._stop_timeout = max(0.0, timeout)
        self._is_stopped = True
        runs = list(self._runs.items())
        for scope, _ in runs:
            scope.cancel()
        if HANDLING.get() is not self:
            for _, ended in runs:
                await ended.wait()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Background requests of this consumer and its client that failed twice or more in a row, and are retried."""
        return (*self._session.problems.present, *self._problems.present)

    def _options(
        self,
        topic: str,
        max_messages: int,
        invisible: float,
        tags: str,
        sql: str | None,
        *,
        order: bool,
        lite: bool,
    ) -> PopOptions:
        check_subscribed_topic(topic)
        wanted = filter_of(tags, sql)
        milliseconds = invisible_ms("invisible", invisible)
        is_ordered = instance_of("order", order, bool, "True or False")
        if instance_of("lite", lite, bool, "True or False") and not wanted.passes_all:
            raise InvalidArgument("lite=True: brokers do not filter lite topics by tags or SQL")
        wrapped = with_namespace(topic, self._settings.namespace)
        return PopOptions(wrapped, max_messages, milliseconds, wanted, is_ordered or lite)

    async def _with_client(self, options: PopOptions, *, lite: bool) -> PopOptions:
        return replace(options, lite_client=await self._subscriptions().client_id(options.topic)) if lite else options

    def _subscriptions(self) -> LiteSubscriptions:
        self._life.check_running()
        assert self._lite is not None
        return self._lite

    def _opened(self) -> Receiving:
        self._life.check_running()
        assert self._receiving is not None
        return self._receiving


def _handler_of_lists(handler: OneHandler) -> Handler:
    if not callable(handler):
        raise InvalidArgument(f"handler={shown(handler)}: it is a function of a message")
    called: Callable[[MessageExt], Any] = handler

    async def handle_later(messages: Messages) -> None:
        await called(messages[0])

    def handle(messages: Messages) -> None:
        called(messages[0])

    return functools.update_wrapper(handle_later if is_async(handler) else handle, handler)
