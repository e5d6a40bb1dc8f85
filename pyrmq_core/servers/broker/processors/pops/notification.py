"""NOTIFICATION (200054) waits for a message, but takes none. POLLING_INFO (200055) counts waiting pops.

Source: broker/processor/NotificationProcessor.java, PollingInfoProcessor.java (5.4.0), with the checks of a pop. A
message wakes one waiting pop and one notification.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, GetPollingInfo, MessageAwaited, PollingInfo
from pyrmq_core.protocol.requests.pop.receipt import RETRY_V1, RETRY_V2, pop_retry_topic
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.held_pulls import held_bytes
from pyrmq_core.servers.broker.pop.reviver import Reviver
from pyrmq_core.servers.broker.pop.waits import MANY_QUEUES
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.name_rules import checked, group_fault, topic_fault
from pyrmq_core.servers.broker.processors.pops.held import HeldRequest, take_later, waiter_of
from pyrmq_core.servers.broker.processors.pops.pop_message import (
    ENDS_SOON_MS,
    broker_refusal,
    popping_refusal,
    queues_of,
)
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable


@dataclass(frozen=True, slots=True)
class NotificationRequests:
    """The handlers of requests to wait for a message without popping it, and for the number of waiting pops."""

    settings: LiveSettings
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    reviver: Reviver

    def handlers(self) -> Handlers:
        names = {"topic": topic_fault, "consumerGroup": group_fault}
        return {
            RequestCode.NOTIFICATION: checked(self.notify, **names),
            RequestCode.POLLING_INFO: checked(self.polling_info, **names),
        }

    def notify(self, request: Command, peer: Peer) -> Answer:
        header = AwaitMessage.from_command(request)
        ends_ms, queues = (header.born_time_ms or clock.now_ms()) + header.poll_time_ms, queues_of(self.topics, header)
        begin = partial(self._begin, request, header, ends_ms, peer)
        return begin() if queues <= MANY_QUEUES else take_later(self.reviver.waits, peer, begin, queues)

    def _begin(self, request: Command, header: AwaitMessage, ends_ms: int, peer: Peer) -> Answer:
        if (refused := self._refuse(header, peer)) is not None:
            return refused
        left_ms = min(ends_ms - clock.now_ms(), header.poll_time_ms)  # after a turn that it may have waited for
        has_message = self.has_message(header)
        if has_message or left_ms <= ENDS_SOON_MS:
            return MessageAwaited(has_message).to_command()
        size_bytes, waits = held_bytes(request, None), self.reviver.waits
        if not waits.held.has_room(peer, size_bytes):
            return MessageAwaited(has_message=False, polling_full=True).to_command()
        waiter = waiter_of(header, takes=False)
        return HeldRequest(waits, waiter, partial(self._look_again, header, peer), peer, size_bytes, left_ms)

    async def _look_again(self, header: AwaitMessage, peer: Peer, is_over: bool) -> Command | None:
        if (queues := queues_of(self.topics, header)) > MANY_QUEUES:
            await self.reviver.waits.take_turn(queues)
        if (refused := self._refuse(header, peer)) is not None:
            return refused
        has_message = self.has_message(header)
        is_over = is_over or not header.order  # an ordered request keeps waiting while the queue is locked
        return MessageAwaited(has_message).to_command() if has_message or is_over else None

    def polling_info(self, request: Command, peer: Peer) -> Answer:
        header = GetPollingInfo.from_command(request)
        answer = PollingInfo(self.reviver.waits.count(waiter_of(header))).to_command()
        return self._refuse(header, peer) or answer

    def _refuse(self, header: AwaitMessage | GetPollingInfo, peer: Peer) -> Command | None:
        refused = broker_refusal(self.settings, "peeking message")
        return refused or popping_refusal(self.topics, self.groups, header, peer)

    def has_message(self, header: AwaitMessage) -> bool:
        """Returns whether the group can pop a message from the requested queues or from a retry topic."""
        queues = [(header.topic, header.queue_id)] if header.queue_id >= 0 else self._queues_of(header.topic)
        for mark in () if header.order else (RETRY_V1, RETRY_V2):
            queues += self._queues_of(pop_retry_topic(header.topic, header.consumer_group, mark))
        return any(self._has_more(header, *queue) for queue in queues)

    def _queues_of(self, topic: str) -> list[tuple[str, int]]:
        config = self.topics.get(topic)
        return [] if config is None else [(topic, queue_id) for queue_id in range(config.read_queue_nums)]

    def _has_more(self, header: AwaitMessage, topic: str, queue_id: int) -> bool:
        queue = header.consumer_group, topic, queue_id
        if header.order and self.reviver.ordered.is_locked(queue, header.attempt_id, clock.now_ms()):
            return False
        start, end = self.reviver.store.reader.bounds((topic, queue_id))
        committed = self.offsets.committed(*queue)
        return end > (start if committed is None else committed)
