"""`RunningLitePull`: the parts of a lite pull consumer once it has a subscription or assigned queues.

Source: client/impl/consumer/DefaultLitePullConsumerImpl.java, 5.4.0. A consumer with assigned queues is no member of
its group here: the group's members would leave queues to it, which it does not read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueues
from pyrmq_core.client.consumer.consume.consume_counts import ConsumeCounts
from pyrmq_core.client.consumer.consume.hand_over import HandOver
from pyrmq_core.client.consumer.consume.hooks import ConsumerHooks
from pyrmq_core.client.consumer.consume.intake import Gate, Intake, IntakeSettings
from pyrmq_core.client.consumer.consume.observers import PollObserver
from pyrmq_core.client.consumer.consume.process_queue import ProcessQueue
from pyrmq_core.client.consumer.consume.received import Receiver
from pyrmq_core.client.consumer.group.membership import ACTIVELY, Membership
from pyrmq_core.client.consumer.group.subscriptions import Filter, Subscription
from pyrmq_core.client.consumer.lite_pull_member import LitePullMember
from pyrmq_core.client.consumer.member_settings import LitePullSettings
from pyrmq_core.client.consumer.offsets.local_offsets import LocalOffsetStore
from pyrmq_core.client.consumer.offsets.offset_store import OffsetStore, RemoteOffsetStore
from pyrmq_core.client.consumer.offsets.start_offsets import StartOffsets
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.consumer.rebalance.rebalancer import FixedQueues, Rebalancer
from pyrmq_core.client.hook_calls import quietly
from pyrmq_core.errors import RocketMQError
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageModel, MessageQueue
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.messages.namespaces import without_namespace


class OffsetsByHand:
    """An offset store for commits by hand: it ignores which messages are consumed."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    async def load(self) -> None:
        await self._store.load()

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None: ...

    def freeze(self, queue: MessageQueue, offset: int) -> None: ...

    def known(self, queue: MessageQueue) -> int | None:
        return self._store.known(queue)

    async def stored(self, queue: MessageQueue) -> int | None:
        return await self._store.stored(queue)

    async def persist(self, queues: Collection[MessageQueue], *, confirmed: bool = False) -> None:
        """Does nothing: a commit by hand stores at once."""

    def forget(self, queue: MessageQueue) -> None:
        self._store.forget(queue)


log = logging.getLogger(__name__)

# How long a pull waits at the broker for a message (DefaultLitePullConsumer.brokerSuspendMaxTimeMillis).
HOLD_SECONDS: Final = 20.0
DIFFERENCES_SECONDS: Final = 30.0
# The most seconds for closing: storing offsets, leaving the brokers.
LEAVING_SECONDS: Final = 5.0


class RunningLitePull:
    """A lite pull consumer at work: its queues, their intake, and the messages that wait for a poll."""

    def __init__(
        self,
        client: ClientSession,
        settings: LitePullSettings[Any],
        group: str,
        lookups: QueueOffsets,
        nursery: trio.Nursery,
        hooks: ConsumerHooks,
        *,
        subscribes: bool,
    ) -> None:
        self.subscribes = subscribes
        self.problems = Problems(log)
        self.membership = Membership(client, group, ACTIVELY, settings.message_model, settings.consume_from_where)
        self._counts = ConsumeCounts()
        observer = PollObserver(hooks, self._counts, settings.group, settings.namespace)
        self.hand_over = HandOver(settings.pull_batch_size, observer)
        self._client = client
        self._settings = settings
        self._lookups = lookups
        self._nursery = nursery
        self._clusters = settings.message_model is MessageModel.CLUSTERING
        self._store = self._new_store(group)
        self._starts = StartOffsets(lookups, self._store, settings.consume_from_where, settings.consume_timestamp)
        self._checked: set[tuple[str, str]] = set()  # SQL expressions that a broker has checked
        self._puller = Puller(client, group, is_member=True)
        self._intake_settings = IntakeSettings(settings.pull_batch_size, HOLD_SECONDS)
        self._gates: dict[MessageQueue, Gate] = {}
        self._is_full = False
        self.has_started = False
        self._committed: dict[MessageQueue, int] = {}
        store = self._store if settings.auto_commit else OffsetsByHand(self._store)
        self.assigned = AssignedQueues(
            nursery, store, self, self._new_intake, lambda assigned: None, self._queues_changed, self.problems
        )
        self._filter_for_assigned: Filter = TagFilter()
        self._fixed = FixedQueues(self.assigned)
        strategy = settings.allocate_message_queue_strategy if self._clusters else None
        self._rebalancer = Rebalancer(
            client,
            group,
            strategy,
            lambda: self.membership.topics,
            self.assigned,
            self.membership.announce_soon,
            self.problems,
        )
        self._member = LitePullMember(
            settings, self.membership, self._rebalancer, self.assigned, self._counts, self._reset_soon
        )

    async def subscribe(self, topic: str, wanted: Filter) -> None:
        """Adds a topic, or changes its filter. The first topic joins the group and starts the work."""
        await self._learn_route(topic)
        subscription = self.membership.subscribe(topic, wanted)
        self._pull_anew(subscription)
        if self.has_started:
            await self.membership.announce()
            self._rebalancer.wake()
        else:
            await self._store.load()
            await self.membership.join(self._member)
            self._start(self.membership.run, self._rebalancer.run, self._watch_differences)

    async def unsubscribe(self, topic: str) -> None:
        self.membership.unsubscribe(topic)
        await self.membership.announce()
        await self.assigned.drop_others(self.membership.topics)

    async def assign(self, queues: Collection[MessageQueue], wanted: Filter) -> None:
        """Replaces the assigned queues, and returns when they are read, as far as their brokers answer."""
        changed = wanted != self._filter_for_assigned
        self._filter_for_assigned = wanted
        for topic in dict.fromkeys(queue.topic for queue in queues):
            await self._learn_route(topic)
            if changed:
                self._pull_anew(Subscription(topic, wanted, 0))
        self._fixed.set(queues)
        if not self.has_started:
            await self._store.load()
            self._start(self._fixed.run)
        await self._fixed.run_round()

    async def seek(self, queue: MessageQueue, offset: int) -> bool:
        """Reads a queue from another offset. Returns False if this consumer no longer has the queue."""
        return await self.assigned.restart(queue, offset)

    def pause(self, queues: Collection[MessageQueue]) -> None:
        self.hand_over.pause(queues)
        self._open_gates()

    def resume(self, queues: Collection[MessageQueue]) -> None:
        self.hand_over.resume([assigned for assigned in self.assigned if assigned.queue in queues])
        self._open_gates()

    def settle(self, received: int | None = None) -> None:
        """Settles messages as `HandOver.settle` does, and pulls more if there is room now."""
        self.hand_over.settle(received)
        if self._is_full:
            self._open_gates()

    def uncommitted(self) -> dict[MessageQueue, int]:
        """Returns the consumed offset of each queue, without queues whose offset `commit` has stored already."""
        reached = {assigned.queue: assigned.process_queue.offset_to_commit for assigned in self.assigned}
        return {queue: offset for queue, offset in reached.items() if self._committed.get(queue) != offset}

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Stores offsets, even if they are lower than before. Raises the first failure."""
        for queue, offset in offsets.items():
            self._store.update(queue, offset, increase_only=False)
        if self._clusters:
            await self._lookups.commit_offsets(offsets)
        else:
            await self._store.persist(offsets, confirmed=True)
        self._committed.update(offsets)

    async def committed(self, queue: MessageQueue) -> int | None:
        return await (self._lookups.committed(queue) if self._clusters else self._store.stored(queue))

    async def leave(self) -> None:
        """Stores the offsets and leaves the group, within `LEAVING_SECONDS`. Unsettled messages count as failed."""
        self.hand_over.close()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVING_SECONDS):
            await self.assigned.close()
            await self.membership.leave()

    async def start_of(self, queue: MessageQueue) -> int:
        """Returns the start offset of a queue, after its broker has checked the SQL expression, if any."""
        wanted = self._filter_of(queue.topic)
        if isinstance(wanted, SqlFilter) and (queue.broker_name, wanted.expression) not in self._checked:
            await self._lookups.check_filter(queue, wanted)
            self._checked.add((queue.broker_name, wanted.expression))
        offset = await self._starts.start_of(queue)
        self._filter_of(queue.topic)  # raises if the topic was unsubscribed meanwhile
        return offset

    def arrived(self, process_queue: ProcessQueue, count: int) -> None:
        """Passes new messages to the next poll, and stops pulling at the limit for all queues."""
        self._counts.note_pull(process_queue.queue.topic, count)
        assigned = self.assigned.get(process_queue.queue)
        if assigned is not None and assigned.process_queue is process_queue:
            self.hand_over.arrived(assigned)
            if len(self._gates) * self._settings.pull_threshold_for_queue > self._settings.pull_threshold_for_all:
                self._open_gates()

    def offset_corrected(self, process_queue: ProcessQueue, offset: int) -> None:
        """Continues at the offset to which the broker moved the queue."""
        log.info(
            "%s moves %s from offset %d to %d: a reset of the group, or the next offset that it keeps",
            process_queue.queue.broker_name,
            process_queue.queue,
            process_queue.position,
            offset,
        )
        self._nursery.start_soon(self.assigned.restart, process_queue.queue, offset, process_queue)

    def commits_with_pulls(self) -> bool:
        return False

    def bare_queues(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        if self._settings.namespace is None:
            return tuple(queues)
        return tuple(replace(queue, topic=without_namespace(queue.topic, self._settings.namespace)) for queue in queues)

    def _start(self, *tasks: Callable[[], Awaitable[None]]) -> None:
        self.has_started = True
        for task in tasks:
            self._nursery.start_soon(task)
        self._nursery.start_soon(self._commit_regularly)

    def _new_store(self, group: str) -> OffsetStore:
        if self._clusters:
            return RemoteOffsetStore(self._lookups, self.problems)
        folder = self._settings.local_offset_store_dir
        return LocalOffsetStore(self._client.offsets_id, group, None if folder is None else Path(folder))

    def _new_intake(self, process_queue: ProcessQueue) -> Intake:
        queue = process_queue.queue
        gate = self._gates[queue] = Gate()
        if self._is_full or self.hand_over.is_paused(queue):
            gate.close()
        receiver = Receiver(self._filter_of(queue.topic), self._settings.namespace)
        limits = self._settings.limits
        return Intake(self._puller, process_queue, receiver, self._intake_settings, limits, self, gate, self.problems)

    def _filter_of(self, topic: str) -> Filter:
        return self.membership.filter_of(topic) if self.subscribes else self._filter_for_assigned

    def _open_gates(self) -> None:
        waiting = sum(len(assigned.process_queue) for assigned in self.assigned)
        self._is_full = waiting > self._settings.pull_threshold_for_all
        for queue, gate in self._gates.items():
            if self._is_full or self.hand_over.is_paused(queue):
                gate.close()
            else:
                gate.open()

    def _pull_anew(self, subscription: Subscription) -> None:
        for assigned in self.assigned.of_topic(subscription.topic):
            assigned.intake.pull_anew(Receiver(subscription.filter, self._settings.namespace))

    def _queues_changed(self, topic: str) -> None:
        own = self.assigned.queues
        for table in (self._gates, self._committed):
            for queue in table.keys() - own:
                del table[queue]
        self.hand_over.keep(own)
        self._open_gates()
        if not self.subscribes:
            return
        self.membership.renew_version(topic)
        self.membership.announce_soon()
        if (listener := self._settings.message_queue_listener) is not None:
            every = self.bare_queues(self._rebalancer.known_queues.get(topic, ()))
            of_topic = self.bare_queues(queue for queue in own if queue.topic == topic)
            quietly(listener, without_namespace(topic, self._settings.namespace), every, of_topic)

    async def _learn_route(self, topic: str) -> None:
        try:
            await self._client.routes.refresh(topic)
        except RocketMQError as error:
            log.debug("the route of %s is not known yet: %s", topic, error)

    async def _commit_regularly(self) -> None:
        while True:
            await trio.sleep(self._settings.auto_commit_interval)
            self._counts.sample(trio.current_time())
            if self._settings.auto_commit:
                self.assigned.note_offsets()
                await self._store.persist(self.assigned.queues)

    async def _watch_differences(self) -> None:
        while True:
            await trio.sleep(DIFFERENCES_SECONDS)
            await self.membership.report_differences()

    def _reset_soon(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._nursery.start_soon(self._reset, offsets)

    async def _reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            await self.assigned.restart(queue, offset)
        try:
            await self.commit(offsets)
        except RocketMQError as error:
            log.warning(
                "the offsets of group %s were reset here, and could not be stored: %s", self._settings.group, error
            )
