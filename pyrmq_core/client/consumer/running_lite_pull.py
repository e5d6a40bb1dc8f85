"""`RunningLitePull`: a lite pull consumer at work, once it has a subscription or assigned queues.

Source: client/impl/consumer/DefaultLitePullConsumerImpl.java, 5.4.0. A consumer with assigned queues does not join its
group: as a member it would be allocated a share of the topic's queues, which it would leave unread. Java's lite pull
consumer ignores a reset of offsets (220), while here the queues continue at the new offsets. A message cannot be
consumed directly (309), since there is no listener.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.consume.hand_over import HandOver
from pyrmq_core.client.consumer.consume.hooks import ConsumerHooks
from pyrmq_core.client.consumer.consume.intake import Gate, Intake, IntakeSettings
from pyrmq_core.client.consumer.consume.observers import PollObserver
from pyrmq_core.client.consumer.consume.process_queue import ProcessQueue
from pyrmq_core.client.consumer.consume.received import Receiver
from pyrmq_core.client.consumer.group.membership import ACTIVELY, Membership
from pyrmq_core.client.consumer.group.subscriptions import Filter, Subscription
from pyrmq_core.client.consumer.member_settings import LitePullSettings
from pyrmq_core.client.consumer.offsets.offset_store import OffsetStore
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.consumer.rebalance.rebalancer import FixedQueues
from pyrmq_core.client.consumer.running_member import MemberAnswers, RunningMember
from pyrmq_core.errors import RocketMQError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageExt, MessageQueue
from pyrmq_core.protocol.requests.client.consume_message_directly import CMResult, ConsumeDirectlyResult
from pyrmq_core.protocol.requests.client.get_consumer_running_info import PROP_CONSUME_ORDERLY, PROP_CONSUME_TYPE


class OffsetsByHand:
    """An offset store for `auto_commit=False`. Only the user's `commit` changes offsets, consuming does not."""

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
        """Does nothing, since `commit` stores at once."""

    def forget(self, queue: MessageQueue) -> None:
        self._store.forget(queue)


log = logging.getLogger(__name__)

# How long a pull waits at the broker for a message (DefaultLitePullConsumer.brokerSuspendMaxTimeMillis).
HOLD_SECONDS: Final = 20.0


class RunningLitePull(RunningMember):
    """A running lite pull consumer: its queues, their pulling, and the messages for the next polls."""

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
        membership = Membership(client, group, ACTIVELY, settings.message_model, settings.consume_from_where)
        super().__init__(client, settings, group, membership, lookups, nursery, log)
        self.subscribes = subscribes
        self._settings = settings
        self.hand_over = HandOver(settings.pull_batch_size, PollObserver(hooks, settings.group, settings.namespace))
        self._intake_settings = IntakeSettings(settings.pull_batch_size, HOLD_SECONDS)
        self._gates: dict[MessageQueue, Gate] = {}
        self._is_full = False
        self.has_started = False
        self._committed: dict[MessageQueue, int] = {}
        store = self._store if settings.auto_commit else OffsetsByHand(self._store)
        self._make_queues(store, lambda assigned: None)
        self._filter_for_assigned: Filter = TagFilter()
        self._fixed = FixedQueues(self.assigned)
        self._member = LitePullMember(self, settings)

    async def subscribe(self, topic: str, wanted: Filter) -> None:
        """Adds a topic, or changes its filter. At the first topic the consumer joins the group and starts."""
        await self._learn_route(topic)
        subscription = self.membership.subscribe(topic, wanted)
        self.changed(subscription)
        if self.has_started:
            await self.membership.announce()
            self.rebalancer.wake()
        else:
            await self._store.load()
            await self.membership.join(self._member)
            self._start(self.membership.run, self.rebalancer.run, self._watch_differences)

    async def unsubscribe(self, topic: str) -> None:
        self.membership.unsubscribe(topic)
        await self.membership.announce()
        await self.assigned.drop_others(self.membership.topics)

    async def assign(self, queues: Collection[MessageQueue], wanted: Filter) -> None:
        """Replaces the assigned queues. Returns when reading has started, except from brokers that do not answer."""
        changed = wanted != self._filter_for_assigned
        self._filter_for_assigned = wanted
        for topic in dict.fromkeys(queue.topic for queue in queues):
            await self._learn_route(topic)
            if changed:
                self.changed(Subscription(topic, wanted, 0))
        self._fixed.set(queues)
        if not self.has_started:
            await self._store.load()
            self._start(self._fixed.run)
        await self._fixed.run_round()

    async def seek(self, queue: MessageQueue, offset: int) -> bool:
        return await self.assigned.restart(queue, offset)

    def pause(self, queues: Collection[MessageQueue]) -> None:
        self.hand_over.pause(queues)
        self._open_gates()

    def resume(self, queues: Collection[MessageQueue]) -> None:
        self.hand_over.resume([assigned for assigned in self.assigned if assigned.queue in queues])
        self._open_gates()

    def settle(self, received: int | None = None) -> None:
        self.hand_over.settle(received)
        if self._is_full:
            self._open_gates()

    def uncommitted(self) -> dict[MessageQueue, int]:
        """Returns the consumed offsets that `commit` has not stored yet, by queue."""
        reached = {assigned.queue: assigned.process_queue.offset_to_commit for assigned in self.assigned}
        return {queue: offset for queue, offset in reached.items() if self._committed.get(queue) != offset}

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
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
        """Stores the offsets and leaves the group, within `LEAVING_SECONDS`.

        Reports the messages of the last poll to hooks as failed, unless `settle` has recorded them as consumed.
        """
        self.hand_over.close()
        await super().leave()

    def arrived(self, process_queue: ProcessQueue, count: int) -> None:
        self.counts.note_pull(process_queue.queue.topic, count)
        assigned = self.assigned.get(process_queue.queue)
        if assigned is not None and assigned.process_queue is process_queue:
            self.hand_over.arrived(assigned)
            if len(self._gates) * self._settings.pull_threshold_for_queue > self._settings.pull_threshold_for_all:
                self._open_gates()

    async def _correct(self, process_queue: ProcessQueue, offset: int) -> None:
        await self.assigned.restart(process_queue.queue, offset, process_queue)

    def commits_with_pulls(self) -> bool:
        return False

    def _start(self, *tasks: Callable[[], Awaitable[None]]) -> None:
        self.has_started = True
        for task in tasks:
            self._nursery.start_soon(task)
        interval, commits = self._settings.auto_commit_interval, self._settings.auto_commit
        self._nursery.start_soon(partial(self._persist, interval, commits=commits))

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

    def _queues_changed(self, topic: str) -> None:
        own = self.assigned.queues
        for table in (self._gates, self._committed):
            for queue in table.keys() - own:
                del table[queue]
        self.hand_over.keep(own)
        self._open_gates()
        if self.subscribes:
            self._report_queues(topic)

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
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


class LitePullMember(MemberAnswers):
    """The answers of one running lite pull consumer to brokers' requests. It refuses direct consumption (309)."""

    def __init__(self, running: RunningMember, settings: LitePullSettings[Any]) -> None:
        super().__init__(running, settings)
        self._settings = settings

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        remark = "a lite pull consumer has no listener that could consume the message"
        return ConsumeDirectlyResult(consume_result=CMResult.THROW_EXCEPTION, remark=remark)

    def _properties(self) -> dict[str, str]:
        return {
            PROP_CONSUME_TYPE: ACTIVELY,
            PROP_CONSUME_ORDERLY: "false",
            "autoCommit": str(self._settings.auto_commit).lower(),
            "pullThresholdForAll": str(self._settings.pull_threshold_for_all),
        }
