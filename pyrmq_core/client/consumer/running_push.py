"""`RunningPushConsumer`: a push consumer at work, whose parts are started and stopped in order.

Source: client/impl/consumer/DefaultMQPushConsumerImpl.java (start, shutdown), 5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.consume.concurrently import ConcurrentService
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
from pyrmq_core.client.consumer.member_settings import PushSettings
from pyrmq_core.client.consumer.push_member import PushMember
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.consumer.running_member import RunningMember
from pyrmq_core.model import MessageQueue

log = logging.getLogger(__name__)

MAX_TRIES_ANY: Final = 2**31 - 1


class RunningPushConsumer(RunningMember):
    """A running push consumer: membership, rebalancing, pulling, and the service that calls the handler."""

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
        batch_size: int,
        consume_timeout: float,
    ) -> None:
        lookups = QueueOffsets(client, group, timeout=settings.timeout)
        super().__init__(client, settings, group, membership, lookups, nursery, log)
        self._settings = settings
        self._orderly = orderly
        self._batch_size = batch_size
        self._consume_timeout = consume_timeout
        self._gate = gate
        hooks = ConsumerHooks(settings.hooks if tracer is None else [*settings.hooks, tracer])
        self._observer = CallObserver(hooks, settings.group, settings.namespace)
        self._intake_settings = IntakeSettings(batch_size=settings.pull_batch_size, interval=settings.pull_interval)
        locks = QueueLocks(client, group, self.problems) if orderly and self._clusters else None
        self.service = self._new_service(calls, locks)
        self._make_queues(self._store, self.service.added, locks)
        nameservers = client.nameservers
        self._member = PushMember(
            self, settings, locks, calls, lambda: ";".join(nameservers.addresses), orderly=orderly
        )

    async def start(self) -> None:
        await self._store.load()
        for topic in self.membership.topics:
            await self._learn_route(topic)
        await self.membership.join(self._member)
        persist = partial(self._persist, self._settings.persist_consumer_offset_interval)
        for task in (self.membership.run, self.rebalancer.run, persist, self._watch_differences):
            self._nursery.start_soon(task)

    async def finish_handlers(self, timeout: float) -> None:
        with trio.move_on_after(timeout):
            await self.service.finish()

    def arrived(self, process_queue: ProcessQueue, count: int) -> None:
        self.counts.note_pull(process_queue.queue.topic, count)
        assigned = self.assigned.get(process_queue.queue)
        if assigned is not None:
            self.service.arrived(assigned)

    async def _correct(self, process_queue: ProcessQueue, offset: int) -> None:
        await self._move({process_queue.queue: offset}, process_queue)

    def commits_with_pulls(self) -> bool:
        return self._clusters

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._nursery.start_soon(self._move, offsets)

    async def _move(self, offsets: Mapping[MessageQueue, int], only: ProcessQueue | None = None) -> None:
        await self.assigned.move(offsets, only)
        self.rebalancer.wake()

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
                batch_size=self._batch_size,
                suspension=settings.suspend_current_queue_time,
                most_tries=settings.max_reconsume_times,
            )
        return ConcurrentService(
            calls,
            self._observer,
            send_back,
            workers=settings.consume_threads,
            batch_size=self._batch_size,
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
        own = self.assigned.of_topic(topic)
        for assigned in own:
            assigned.intake.limits = self._settings.limits(len(own), orderly=self._orderly)
            assigned.intake.room_freed()
        self._report_queues(topic)
