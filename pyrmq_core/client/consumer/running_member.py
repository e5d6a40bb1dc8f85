"""`RunningMember`: the common parts of running push and lite pull consumers. `MemberAnswers` answers brokers' requests.

Sources: client/ClientRemotingProcessor.java, DefaultMQPushConsumerImpl.java and DefaultLitePullConsumerImpl.java in
client/impl/consumer, client/impl/factory/MQClientInstance.java (resetOffset), 5.4.0.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue, AssignedQueues
from pyrmq_core.client.consumer.consume.consume_counts import ConsumeCounts
from pyrmq_core.client.consumer.consume.intake import Intake
from pyrmq_core.client.consumer.consume.process_queue import ProcessQueue
from pyrmq_core.client.consumer.consume.queue_locks import QueueLocks
from pyrmq_core.client.consumer.consume.received import Receiver
from pyrmq_core.client.consumer.group.membership import Membership
from pyrmq_core.client.consumer.group.subscriptions import Filter, Subscription
from pyrmq_core.client.consumer.member_settings import MemberSettings
from pyrmq_core.client.consumer.offsets.local_offsets import LocalOffsetStore
from pyrmq_core.client.consumer.offsets.offset_store import OffsetStore, RemoteOffsetStore, StartOffsets
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.consumer.rebalance.rebalancer import Rebalancer
from pyrmq_core.client.hook_calls import quietly
from pyrmq_core.errors import RocketMQError
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.model import MessageModel, MessageQueue
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.requests.client.get_consumer_running_info import (
    PROP_CONSUMER_START_TIMESTAMP,
    ConsumerRunningInfo,
)

DIFFERENCES_SECONDS: Final = 30.0
# The time limit for leaving the group: storing offsets, and notifying brokers.
LEAVING_SECONDS: Final = 5.0


class RunningMember(ABC):
    """A running member of a group: its offsets, and, after `_make_queues`, its queues and their rebalancing."""

    def __init__(
        self,
        client: ClientSession,
        settings: MemberSettings[Any],
        group: str,
        membership: Membership,
        lookups: QueueOffsets,
        nursery: trio.Nursery,
        log: logging.Logger,
    ) -> None:
        self.membership = membership
        self.counts = ConsumeCounts()
        self.problems = Problems(log)
        self._log = log
        self._client = client
        self._common = settings
        self._group = group
        self._lookups = lookups
        self._nursery = nursery
        self._clusters = settings.message_model is MessageModel.CLUSTERING
        self._store = self._new_store()
        self._starts = StartOffsets(lookups, self._store, settings.consume_from_where, settings.consume_timestamp)
        self._checked: set[tuple[str, str]] = set()  # SQL expressions that a broker has checked
        self._puller = Puller(client, group, is_member=True)

    def _new_store(self) -> OffsetStore:
        if self._clusters:
            return RemoteOffsetStore(self._lookups, self.problems)
        folder = self._common.local_offset_store_dir
        return LocalOffsetStore(self._client.offsets_id, self._group, None if folder is None else Path(folder))

    def _make_queues(
        self, store: OffsetStore, added: Callable[[AssignedQueue], None], locks: QueueLocks | None = None
    ) -> None:
        self.assigned = AssignedQueues(
            self._nursery,
            store,
            self,
            self._new_intake,
            added,
            self._queues_changed,
            self.problems,
            locks,
            self.counts,
        )
        strategy = self._common.allocate_message_queue_strategy if self._clusters else None
        membership = self.membership
        self.rebalancer = Rebalancer(
            self._client,
            self._group,
            strategy,
            lambda: membership.topics,
            self.assigned,
            membership.announce_soon,
            self.problems,
        )

    @abstractmethod
    def _new_intake(self, process_queue: ProcessQueue) -> Intake: ...

    @abstractmethod
    def _queues_changed(self, topic: str) -> None: ...

    @abstractmethod
    async def _correct(self, process_queue: ProcessQueue, offset: int) -> None:
        """Moves a queue to an offset that its broker reported, and continues to pull there."""

    @abstractmethod
    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continues to consume these queues at other offsets, after a reset of the group."""

    async def leave(self) -> None:
        """Stores the offsets and leaves the group, within `LEAVING_SECONDS`."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVING_SECONDS):
            await self.assigned.close()
            await self.membership.leave()

    async def start_of(self, queue: MessageQueue) -> int:
        """Returns the offset at which to begin to read a queue.

        If the topic has an SQL filter, the queue's broker first checks it. Raises `InvalidState` if the topic was
        unsubscribed meanwhile.
        """
        wanted = self._filter_of(queue.topic)
        if isinstance(wanted, SqlFilter) and (queue.broker_name, wanted.expression) not in self._checked:
            await self._lookups.check_filter(queue, wanted)
            self._checked.add((queue.broker_name, wanted.expression))
        offset = await self._starts.start_of(queue)
        self._filter_of(queue.topic)  # raises `InvalidState` if the topic was unsubscribed meanwhile
        return offset

    def _filter_of(self, topic: str) -> Filter:
        return self.membership.filter_of(topic)

    def changed(self, subscription: Subscription) -> None:
        for assigned in self.assigned.of_topic(subscription.topic):
            assigned.intake.pull_anew(Receiver(subscription.filter, self._common.namespace))

    def offset_corrected(self, process_queue: ProcessQueue, offset: int) -> None:
        self._log.info(
            "%s moves %s from offset %d to %d: a reset of the group, or the next offset that it keeps",
            process_queue.queue.broker_name,
            process_queue.queue,
            process_queue.position,
            offset,
        )
        self._nursery.start_soon(self._correct, process_queue, offset)

    def bare_queues(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        namespace = self._common.namespace
        if namespace is None:
            return tuple(queues)
        return tuple(replace(queue, topic=without_namespace(queue.topic, namespace)) for queue in queues)

    def _report_queues(self, topic: str) -> None:
        self.membership.renew_version(topic)
        self.membership.announce_soon()
        if (listener := self._common.message_queue_listener) is not None:
            every = self.bare_queues(self.rebalancer.known_queues.get(topic, ()))
            own = self.bare_queues(assigned.queue for assigned in self.assigned.of_topic(topic))
            quietly(listener, without_namespace(topic, self._common.namespace), every, own)

    async def _learn_route(self, topic: str) -> None:
        try:
            await self._client.routes.refresh(topic)
        except RocketMQError as error:
            self._log.debug("the route of %s is not known yet: %s", topic, error)

    async def _persist(self, interval: float, *, commits: bool = True) -> None:
        while True:
            await trio.sleep(interval)
            self.counts.sample(trio.current_time())
            if commits:
                self.assigned.note_offsets()
                await self._store.persist(self.assigned.queues)

    async def _watch_differences(self) -> None:
        while True:
            await trio.sleep(DIFFERENCES_SECONDS)
            await self.membership.report_differences()


class MemberAnswers:
    """The answers of a running consumer to brokers' requests: changed members, resets, and queries of its state."""

    def __init__(self, running: RunningMember, settings: MemberSettings[Any]) -> None:
        self._running = running
        self._common = settings
        self._began_ms = time.time_ns() // 1_000_000

    def consumer_ids_changed(self) -> None:
        self._running.rebalancer.wake()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        own = {
            queue: offset
            for queue, offset in offsets.items()
            if queue.topic == topic and offset >= 0 and queue in self._running.assigned
        }
        if own:
            self._running.move(own)

    def consumer_status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {entry.queue: entry.process_queue.offset_to_commit for entry in self._running.assigned.of_topic(topic)}

    def running_info(self, *, jstack: bool) -> ConsumerRunningInfo:
        """Returns settings, subscriptions, queues and rates in Java's form, with `jstack` also the threads' stacks."""
        running, settings = self._running, self._common
        common = {
            PROP_CONSUMER_START_TIMESTAMP: str(self._began_ms),
            "consumerGroup": settings.group,
            "messageModel": settings.message_model.value,
            "consumeFromWhere": settings.consume_from_where.value,
            "pullBatchSize": str(settings.pull_batch_size),
            "pullThresholdForQueue": str(settings.pull_threshold_for_queue),
            "allocateMessageQueueStrategy": settings.allocate_message_queue_strategy.name,
        }
        return ConsumerRunningInfo(
            properties={**common, **self._properties()},
            subscriptions=tuple(subscription.data() for subscription in running.membership.subscriptions.values()),
            queues={entry.queue: entry.info(is_locked=self._is_locked(entry.queue)) for entry in running.assigned},
            statuses=running.counts.statuses(trio.current_time()),
            jstack=self._stacks() if jstack else None,
        )

    def _properties(self) -> dict[str, str]:
        return {}

    def _is_locked(self, queue: MessageQueue) -> bool:
        return False

    def _stacks(self) -> str | None:
        return None
