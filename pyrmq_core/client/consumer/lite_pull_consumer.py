"""`LitePullConsumer`: consumes by polling (client/consumer/DefaultLitePullConsumer.java)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import trio

from pyrmq_core.client.arguments import first_millisecond, offset_of, queue_of, seconds_of, tuple_of
from pyrmq_core.client.client import Client
from pyrmq_core.client.consumer.consume.hand_over import HandOver
from pyrmq_core.client.consumer.consume.hooks import ConsumerHooks
from pyrmq_core.client.consumer.consume.message_trace import ConsumerTracer
from pyrmq_core.client.consumer.group.subscriptions import Filter, check_subscribed_topic, filter_of
from pyrmq_core.client.consumer.member_settings import LitePullSettings
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.consumer.running_lite_pull import RunningLitePull
from pyrmq_core.client.consumer.sql_checks import check_at_first_broker
from pyrmq_core.client.hook_calls import quietly
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.producer.trace_dispatcher import CONSUME, open_tracing
from pyrmq_core.client.session_owner import SessionOwner
from pyrmq_core.errors import InvalidArgument, InvalidState, RocketMQError
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.model import MessageExt, MessageQueue, Problem
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.messages.names import check_topic
from pyrmq_core.protocol.messages.namespaces import with_namespace

COMPARISON: Final = "looking for changed queues of the watched"
TopicListener = Callable[[str, Sequence[MessageQueue]], object]


class TopicWatch:
    """The listeners that are called when a topic's queues change. The queues are queried every `interval` seconds."""

    def __init__(self, lookups: QueueOffsets, interval: float, problems: Problems) -> None:
        self._lookups = lookups
        self._problems = problems
        self._interval = interval
        self._listeners: dict[str, TopicListener] = {}
        self._known: dict[str, frozenset[MessageQueue] | None] = {}

    async def add(self, topic: str, listener: TopicListener) -> None:
        queues = (await self._lookups.current_queues([topic]))[topic]
        self._known[topic] = None if queues is None else frozenset(queues)
        self._listeners[topic] = listener

    def remove(self, topic: str) -> None:
        self._listeners.pop(topic, None)

    async def run(self) -> None:
        while True:
            await trio.sleep(self._interval)
            try:
                await self.compare()
            except RocketMQError as error:
                self._problems.failed(COMPARISON, "topics", error)
            else:
                self._problems.passed(COMPARISON, "topics")

    async def compare(self) -> None:
        """Calls the listeners of topics whose queues changed. A topic that the NameServer does not know is skipped."""
        for topic, queues in (await self._lookups.current_queues(tuple(self._listeners))).items():
            if queues is None or topic not in self._listeners:
                continue
            before, self._known[topic] = self._known[topic], frozenset(queues)
            if before != self._known[topic]:
                quietly(self._listeners[topic], topic, queues)


# The longest time that other tasks wait for a task whose polls always return messages at once.
TURN_SECONDS: Final = 0.001


class LitePullConsumer(SessionOwner[LitePullSettings[Any]]):
    """A consumer that is polled: it subscribes to topics as a member of its group, or reads assigned queues.

    `async with LitePullConsumer("audit", nameserver="127.0.0.1:9876") as consumer:` opens a client of its own, and with
    `client=` it shares one. Only one task at a time may call `poll`.

    With `auto_commit`, the messages of a poll count as consumed when the next poll begins, or when the block ends
    without an exception. So finish the work of a poll before the next one: then every message is processed at least
    once.
    """

    _KIND = "consumer"

    @parameters_of(LitePullSettings[Client])
    def __init__(self, settings: LitePullSettings[Client]) -> None:
        self._begin(settings, settings.shared_client(Client, "pyrmq_core.Client"))

    def _configure(self) -> None:
        settings = self._settings
        self.group = settings.group
        self._nursery: trio.Nursery | None = None
        self._wrapped_group = with_namespace(self.group, settings.namespace)
        self._lookups = QueueOffsets(self._session, self._wrapped_group, timeout=settings.timeout)
        topic = settings.trace_topic
        self._tracer = None if topic is None else ConsumerTracer(topic)
        self._hooks = ConsumerHooks([*settings.hooks, *([self._tracer] if self._tracer else [])])
        self._watch = TopicWatch(self._lookups, settings.topic_metadata_check_interval, self._session.problems)
        self._watches = False
        self._running: RunningLitePull | None = None
        self._changing = trio.Lock()
        self._is_polling = False
        self._others_ran = -TURN_SECONDS  # when other tasks last ran, by trio's clock
        self._received: int | None = None  # for the blocking class: the last poll whose messages it received

    async def _opens(self, stack: AsyncExitStack) -> None:
        self._nursery = nursery = await stack.enter_async_context(open_owned_nursery())
        await stack.enter_async_context(open_tracing(self._tracer, nursery, self._session, self.group, CONSUME))

    async def _closes(self, *, has_failed: bool) -> None:
        running, self._running = self._running, None
        self._life.ended()  # ends a poll under way
        if running is not None:
            if not has_failed:
                running.settle(self._received)
            await running.leave()

    async def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Subscribes to a topic, or changes its filter. The members of the group share the topic's queues.

        `tags` is "*" or "TagA || TagB". `sql` is an SQL92 expression over properties instead. If the topic's brokers
        are known, one of them checks the expression now. Raises `ResponseError` if it cannot evaluate the expression,
        and `InvalidState` after `assign`, since a consumer either subscribes or assigns.
        """
        self._life.check_running()
        wanted = filter_of(tags, sql)
        check_subscribed_topic(topic)
        wrapped = with_namespace(topic, self._settings.namespace)
        async with self._changing:
            self._check_mode(subscribes=True)
            await self._check_sql(wrapped, wanted)
            async with self._started(subscribes=True) as running:
                await running.subscribe(wrapped, wanted)

    async def unsubscribe(self, topic: str) -> None:
        """Ends the subscription. Other members of the group receive the messages of the topic that no poll returned."""
        self._life.check_running()
        async with self._changing:
            self._check_mode(subscribes=True)
            await self._at_work().unsubscribe(with_namespace(topic, self._settings.namespace))

    async def assign(self, queues: Collection[MessageQueue], *, tags: str = "*", sql: str | None = None) -> None:
        """Makes the consumer read exactly these queues, whatever queues other members of the group read.

        The consumer takes no part in the group's rebalancing, but stores offsets under the group. `tags` and `sql`
        filter messages as in `subscribe`. Raises `InvalidState` after `subscribe`, since a consumer either subscribes
        or assigns.
        """
        self._life.check_running()
        wanted = filter_of(tags, sql)
        wrapped = [self._wrapped(queue) for queue in tuple_of("queues", queues, "MessageQueues")]
        if not wrapped:
            raise InvalidArgument("queues is empty: assign one queue or more; to read nothing for a while, pause them")
        async with self._changing:
            self._check_mode(subscribes=False)
            for topic in dict.fromkeys(queue.topic for queue in wrapped):
                await self._check_sql(topic, wanted)
            async with self._started(subscribes=False) as running:
                await running.assign(wrapped, wanted)

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer reads now."""
        return () if self._running is None else self._running.bare_queues(self._running.assigned.queues)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Background requests of this consumer and its client that failed twice or more in a row, and are retried."""
        own = () if self._running is None else self._running.problems.present
        return (*self._session.problems.present, *own)

    async def poll(self, timeout: float = 5.0) -> Sequence[MessageExt]:
        """Returns up to `pull_batch_size` messages of one queue, in order, or an empty list after `timeout` seconds.

        The messages of the previous poll count as consumed from now on. Queues take turns. If the consumer is closed
        during a poll, the poll raises `InvalidState` at once.
        """
        _, messages = await self._poll(timeout, None)
        return messages

    async def _poll(self, timeout: float, received: int | None) -> tuple[int, Sequence[MessageExt]]:
        """Returns the messages of the next poll, and the number of the latest poll that returned messages.

        `received` is the number of the last poll whose messages reached the caller. The messages of a later poll are
        then returned again. None means that all messages reached the caller.
        """
        if timeout != 0:
            seconds_of("timeout", timeout)
        running = self._at_work()
        if self._is_polling:
            raise InvalidState(
                f"consumer {self.group} is being polled in another task: messages of one poll count as consumed with "
                "the next, so one task polls; pass messages on to others, or make a consumer for each"
            )
        self._is_polling = True
        try:
            hand_over = running.hand_over
            running.settle(received)
            await self._let_others_run(hand_over)
            if not (messages := hand_over.take()):
                with trio.move_on_after(timeout):
                    while not messages:
                        await hand_over.wait()
                        if hand_over.is_closed:
                            raise self._life.not_running()
                        messages = hand_over.take()
            return hand_over.number, messages
        finally:
            self._is_polling = False

    async def _let_others_run(self, hand_over: HandOver) -> None:
        """Lets other tasks of the loop run before a poll, at most once a millisecond while messages are ready."""
        now = trio.current_time()
        if hand_over.has_some and now - self._others_ran < TURN_SECONDS:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
            self._others_ran = now

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Sets the offset from which the next polls return the queue's messages. Messages pulled before are dropped.

        Raises `InvalidArgument` if the queue is not assigned to this consumer, or if `offset` is below the queue's
        minimum or above its maximum (the offset of the next message). With `auto_commit` the new offset is committed
        within one interval.
        """
        offset_of("offset", offset)
        wrapped = self._own(queue)
        bounds = (await self._lookups.offset_bounds([wrapped]))[wrapped]
        if not bounds.start <= offset <= bounds.end:
            raise InvalidArgument(
                f"offset={offset}: {queue} has messages from {bounds.start} on, and the next one will be {bounds.end}"
            )
        await self._seek(wrapped, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Makes the next polls return the queue's messages from the oldest one on. Raises the errors of `seek`."""
        wrapped = self._own(queue)
        await self._seek(wrapped, await self._lookups.min_offset(wrapped))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Makes the next polls return only messages stored in the queue from now on. Raises the errors of `seek`."""
        wrapped = self._own(queue)
        await self._seek(wrapped, await self._lookups.max_offset(wrapped))

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Stops pulling and returning messages of these queues until `resume`, or until rebalancing takes them away."""
        self._at_work().pause([self._own(queue) for queue in tuple_of("queues", queues, "MessageQueues")])

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Ends the pause of these queues. Raises `InvalidArgument` for a queue that this consumer does not read."""
        self._at_work().resume([self._own(queue) for queue in tuple_of("queues", queues, "MessageQueues")])

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Stores the consumer offsets of all messages that polls have returned, or the given `offsets`.

        Each offset is that of the next message to read. The call returns when they are stored, and raises the first
        failure. Raises `InvalidArgument` for a queue that this consumer does not read.
        """
        await self._commit(offsets, None)

    async def _commit(self, offsets: Mapping[MessageQueue, int] | None, received: int | None) -> None:
        running = self._at_work()
        if offsets is None:
            running.settle(received)
            await running.commit(running.uncommitted())
            return
        own = {self._own(queue): offset_of(f"the offset of {queue}", offset) for queue, offset in offsets.items()}
        await running.commit(own)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Returns the group's committed offset of the queue, or None if there is none (0 at a broker of 4.9)."""
        return await self._at_work().committed(self._wrapped(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, when: datetime) -> int:
        """Returns the offset of the first message stored at or after `when` (with a time zone), else the maximum."""
        self._life.check_running()
        return await self._lookups.offset_at(self._wrapped(queue), first_millisecond(when))

    async def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns the queues from which the topic may be read. Raises `NoRoute` if no NameServer knows the topic."""
        self._life.check_running()
        check_topic(topic)
        queues = await self._lookups.message_queues(with_namespace(topic, self._settings.namespace))
        return tuple(replace(queue, topic=topic) for queue in queues)

    async def on_topic_changed(self, topic: str, listener: TopicListener | None) -> None:
        """Calls `listener(topic, queues)` whenever the topic's queues change.

        The queues are queried and compared every `topic_metadata_check_interval` seconds. The listener is not async. It
        runs on the library's event loop, so it must return at once, and must not call the library's blocking classes. A
        topic has only one listener, and None removes it.
        """
        self._life.check_running()
        assert self._nursery is not None
        check_topic(topic)
        wrapped = with_namespace(topic, self._settings.namespace)
        if listener is None:
            self._watch.remove(wrapped)
            return
        if not callable(listener):
            raise InvalidArgument(f"listener={listener!r}: it is a function of a topic and its queues")

        def bare(_: str, queues: Sequence[MessageQueue]) -> None:
            listener(topic, tuple(replace(queue, topic=topic) for queue in queues))

        await self._watch.add(wrapped, bare)
        if not self._watches:
            self._watches = True
            self._nursery.start_soon(self._watch.run)

    async def _seek(self, wrapped: MessageQueue, offset: int) -> None:
        if not await self._at_work().seek(wrapped, offset):
            raise self._not_assigned(wrapped)

    def _check_mode(self, *, subscribes: bool) -> None:
        if self._running is not None and self._running.subscribes != subscribes:
            raise InvalidState(
                f"consumer {self.group}: subscribe and assign are mutually exclusive; for the other one make another "
                "consumer, of another group"
            )

    @asynccontextmanager
    async def _started(self, *, subscribes: bool) -> AsyncIterator[RunningLitePull]:
        """Yields the running consumer, and creates it at the first call. With `subscribes` it will join the group.

        If the block fails before the consumer has started, the consumer is discarded.
        """
        assert self._nursery is not None
        running = self._running
        if running is None:
            running = self._running = RunningLitePull(
                self._session,
                self._settings,
                self._wrapped_group,
                self._lookups,
                self._nursery,
                self._hooks,
                subscribes=subscribes,
            )
        try:
            yield running
        except BaseException:
            if not running.has_started:
                self._running = None
                await running.leave()
            raise

    def _at_work(self) -> RunningLitePull:
        self._life.check_running()
        if self._running is None:
            raise InvalidState(f"consumer {self.group} has nothing to read: call subscribe or assign first")
        return self._running

    def _own(self, queue: MessageQueue) -> MessageQueue:
        running, wrapped = self._at_work(), self._wrapped(queue)
        if wrapped not in running.assigned:
            raise self._not_assigned(queue)
        return wrapped

    def _not_assigned(self, queue: MessageQueue) -> InvalidArgument:
        running = self._running
        reason = "another member may read it now" if running is not None and running.subscribes else "assign it first"
        return InvalidArgument(f"queue {queue} is not assigned to this consumer of group {self.group}: {reason}")

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        return replace(queue_of(queue), topic=with_namespace(queue.topic, self._settings.namespace))

    async def _check_sql(self, topic: str, wanted: Filter) -> None:
        """Makes a broker of the topic check an SQL filter. Without a route, the filter is checked at the first read."""
        if isinstance(wanted, SqlFilter):
            timeout = self._settings.timeout
            await check_at_first_broker(self._session, self._wrapped_group, topic, wanted, timeout=timeout)
