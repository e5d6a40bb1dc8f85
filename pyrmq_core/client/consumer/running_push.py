"""`RunningPushConsumer`: the parts of a push consumer while it runs, started and stopped in order.

Source: client/impl/consumer/DefaultMQPushConsumerImpl.java (start, shutdown), 5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueues
from pyrmq_core.client.consumer.consume.concurrently import ConcurrentService
from pyrmq_core.client.consumer.consume.consume_counts import ConsumeCounts
from pyrmq_core.client.consumer.consume.handler_calls import HandlerCalls
from pyrmq_core.client.consumer.consume.hooks import ConsumerHooks
from pyrmq_core.client.consumer.consume.intake import Gate, Intake, IntakeSettings
from pyrmq_core.client.consumer.consume.message_trace import ConsumerTracer
from pyrmq_core.client.consumer.consume.observers import CallObserver
from pyrmq_core.client.consumer.consume.orderly import OrderlyService
from pyrmq_core.client.consumer.consume.process_queue import ProcessQueue
from pyrmq_core.client.consumer.consume.queue_locks import QueueLocks
from pyrmq_core.client.consumer.consume.received import Receiver
from pyrmq_core.client.consumer.consume.send_back import SendBack
from pyrmq_core.client.consumer.group.membership import Membership
from pyrmq_core.client.consumer.group.subscriptions import Subscription
from pyrmq_core.client.consumer.member_settings import PushSettings
from pyrmq_core.client.consumer.offsets.local_offsets import LocalOffsetStore
from pyrmq_core.client.consumer.offsets.offset_store import OffsetStore, RemoteOffsetStore
from pyrmq_core.client.consumer.offsets.start_offsets import StartOffsets
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.client.consumer.push_member import PushMember
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.consumer.rebalance.rebalancer import Rebalancer
from pyrmq_core.client.hook_calls import quietly
from pyrmq_core.errors import RocketMQError
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.model import MessageModel, MessageQueue
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.messages.namespaces import without_namespace

log = logging.getLogger(__name__)

DIFFERENCES_SECONDS: Final = 30.0
MAX_TRIES_ANY: Final = 2**31 - 1
# The most seconds of a stop after its handlers have ended: storing offsets, leaving the brokers.
LEAVING_SECONDS: Final = 5.0


class RunningPushConsumer:
    """A push consumer at work: membership, rebalancing, intake, and the service that calls the handler."""

    def __init__(
        self,
        client: ClientSession,
        settings: PushSettings[Any],
        group: str,
        membership: Membership,
        calls: HandlerCalls,
        nursery: trio.Nursery,
        gate: Gate,
        tracer: ConsumerTracer | None,
        *,
        orderly: bool,
        consume_timeout: float,
    ) -> None:
        self.membership = membership
        self.problems = Problems(log)
        self._client = client
        self._settings = settings
        self._group = group
        self._nursery = nursery
        self._orderly = orderly
        self._consume_timeout = consume_timeout
        self._gate = gate
        self._counts = ConsumeCounts()
        hooks = ConsumerHooks(settings.hooks if tracer is None else [*settings.hooks, tracer])
        self._observer = CallObserver(hooks, self._counts, settings.group, settings.namespace)
        self._lookups = QueueOffsets(client, group, timeout=settings.timeout)
        self._puller = Puller(client, group, is_member=True)
        self._clusters = settings.message_model is MessageModel.CLUSTERING
        self._store = self._new_store()
        self._starts = StartOffsets(self._lookups, self._store, settings.consume_from_where, settings.consume_timestamp)
        self._checked: set[tuple[str, str]] = set()  # SQL expressions that a broker has checked
        self._intake_settings = IntakeSettings(batch_size=settings.pull_batch_size, interval=settings.pull_interval)
        locks = QueueLocks(client, group, self.problems) if orderly and self._clusters else None
        self.service = self._new_service(calls, locks)
        self.assigned = AssignedQueues(
            nursery, self._store, self, self._new_intake, self.service.added, self._queues_changed, self.problems, locks
        )
        strategy = settings.allocate_message_queue_strategy if self._clusters else None
        self.rebalancer = Rebalancer(
            client,
            group,
            strategy,
            lambda: self.membership.topics,
            self.assigned,
            self.membership.announce_soon,
            self.problems,
        )
        self._member = PushMember(
            settings,
            membership,
            self.rebalancer,
            self.assigned,
            locks,
            calls,
            self._counts,
            self.move,
            lambda: ";".join(client.nameservers.addresses),
            orderly=orderly,
        )

    async def start(self) -> None:
        """Joins the group and starts all tasks except the tasks that call the handler."""
        await self._store.load()
        for topic in self.membership.topics:
            await self._learn_route(topic)
        await self.membership.join(self._member)
        for task in (self.membership.run, self.rebalancer.run, self._persist, self._watch_differences):
            self._nursery.start_soon(task)

    async def finish_handlers(self, timeout: float) -> None:
        """Starts no further call of the handler, and waits until running calls end, or for `timeout` seconds."""
        with trio.move_on_after(timeout):
            await self.service.finish()

    async def leave(self) -> None:
        """Stores the offsets, gives the locks back and leaves the group, within `LEAVING_SECONDS`."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVING_SECONDS):
            await self.assigned.close()
            await self.membership.leave()

    async def start_of(self, queue: MessageQueue) -> int:
        """Returns the start offset of a queue, after its broker has checked the topic's SQL expression, if any."""
        wanted = self.membership.filter_of(queue.topic)
        if isinstance(wanted, SqlFilter) and (queue.broker_name, wanted.expression) not in self._checked:
            await self._lookups.check_filter(queue, wanted)
            self._checked.add((queue.broker_name, wanted.expression))
        offset = await self._starts.start_of(queue)
        self.membership.filter_of(queue.topic)  # raises if the topic was unsubscribed meanwhile
        return offset

    def changed(self, subscription: Subscription) -> None:
        for assigned in self.assigned.of_topic(subscription.topic):
            assigned.intake.pull_anew(Receiver(subscription.filter, self._settings.namespace))

    def arrived(self, process_queue: ProcessQueue, count: int) -> None:
        self._counts.note_pull(process_queue.queue.topic, count)
        assigned = self.assigned.get(process_queue.queue)
        if assigned is not None:
            self.service.arrived(assigned)

    def offset_corrected(self, process_queue: ProcessQueue, offset: int) -> None:
        """Stores the offset to which the broker moved the queue, and reads the queue anew from that offset."""
        log.info(
            "%s moves %s from offset %d to %d: a reset of the group, or the next offset that it keeps",
            process_queue.queue.broker_name,
            process_queue.queue,
            process_queue.position,
            offset,
        )
        self._nursery.start_soon(self._move, {process_queue.queue: offset}, process_queue)

    def commits_with_pulls(self) -> bool:
        return self._clusters

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._nursery.start_soon(self._move, offsets)

    async def _move(self, offsets: Mapping[MessageQueue, int], only: ProcessQueue | None = None) -> None:
        await self.assigned.move(offsets, only)
        self.rebalancer.wake()

    async def _learn_route(self, topic: str) -> None:
        try:
            await self._client.routes.refresh(topic)
        except RocketMQError as error:
            log.debug("the route of %s is not known yet: %s", topic, error)

    async def _persist(self) -> None:
        while True:
            await trio.sleep(self._settings.persist_consumer_offset_interval)
            self.assigned.note_offsets()
            self._counts.sample(trio.current_time())
            await self._store.persist(self.assigned.queues)

    async def _watch_differences(self) -> None:
        while True:
            await trio.sleep(DIFFERENCES_SECONDS)
            await self.membership.report_differences()

    def _new_store(self) -> OffsetStore:
        if self._clusters:
            return RemoteOffsetStore(self._lookups, self.problems)
        return self._local_store()

    def _local_store(self) -> LocalOffsetStore:
        folder = self._settings.local_offset_store_dir
        return LocalOffsetStore(self._client.offsets_id, self._group, None if folder is None else Path(folder))

    def _new_service(self, calls: HandlerCalls, locks: QueueLocks | None) -> ConcurrentService | OrderlyService:
        settings = self._settings
        most = settings.max_tries
        if self._orderly and settings.max_reconsume_times is None:
            most = MAX_TRIES_ANY
        send_back = SendBack(self._client, self._group, most) if self._clusters else None
        if self._orderly:
            return OrderlyService(
                calls,
                self._observer,
                send_back,
                locks,
                workers=settings.consume_threads,
                batch_size=settings.consume_message_batch_max_size,
                suspension=settings.suspend_current_queue_time,
                most_tries=settings.max_reconsume_times,
            )
        return ConcurrentService(
            calls,
            self._observer,
            send_back,
            workers=settings.consume_threads,
            batch_size=settings.consume_message_batch_max_size,
            consume_timeout=self._consume_timeout,
        )

    def _new_intake(self, process_queue: ProcessQueue) -> Intake:
        wanted = self.membership.filter_of(process_queue.queue.topic)
        limits = self._settings.limits(1, orderly=self._orderly)
        receiver = Receiver(wanted, self._settings.namespace)
        return Intake(
            self._puller, process_queue, receiver, self._intake_settings, limits, self, self._gate, self.problems
        )

    def _queues_changed(self, topic: str) -> None:
        """Divides the topic's limits among its queues, reports the change to brokers and the user's listener."""
        own = self.assigned.of_topic(topic)
        for assigned in own:
            assigned.intake.limits = self._settings.limits(len(own), orderly=self._orderly)
            assigned.intake.room_freed()
        self.membership.renew_version(topic)
        self.membership.announce_soon()
        if (listener := self._settings.message_queue_listener) is not None:
            every = self.rebalancer.known_queues.get(topic, ())
            quietly(
                listener, self._bare(topic), self.bare_queues(every), self.bare_queues([entry.queue for entry in own])
            )

    def bare_queues(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        if self._settings.namespace is None:
            return tuple(queues)
        return tuple(replace(queue, topic=self._bare(queue.topic)) for queue in queues)

    def _bare(self, topic: str) -> str:
        return without_namespace(topic, self._settings.namespace)
