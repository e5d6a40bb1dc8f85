"""NOTIFICATION (200054) and POLLING_INFO (200055): a wait for a message that takes none, and the number of held pops.

Source: broker/processor/NotificationProcessor.java, PollingInfoProcessor.java (5.4.0), with the same checks as for a
pop. A notification waits apart from pops: a message wakes one of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pyrmq_core.network import LateAnswer, Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, GetPollingInfo, MessageAwaited, PollingInfo
from pyrmq_core.protocol.requests.pop.receipt import RETRY_V1, RETRY_V2, pop_retry_topic
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.held_pulls import HeldPull, held_bytes
from pyrmq_core.servers.broker.pop.waits import PopWaits, Waiter
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.name_rules import checked, group_fault, topic_fault
from pyrmq_core.servers.broker.processors.pops.pop_message import ENDS_SOON_MS, broker_refusal, popping_refusal
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable


@dataclass(frozen=True, slots=True)
class NotificationRequests:
    """Waits for messages to pop."""

    settings: LiveSettings
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    reader: StoreReader
    waits: PopWaits

    def handlers(self) -> Handlers:
        names = {"topic": topic_fault, "consumerGroup": group_fault}
        return {
            RequestCode.NOTIFICATION: checked(self.notify, **names),
            RequestCode.POLLING_INFO: checked(self.polling_info, **names),
        }

    def notify(self, request: Command, peer: Peer) -> Answer:
        header, now_ms = AwaitMessage.from_command(request), clock.now_ms()
        refused = broker_refusal(self.settings, "peeking message", order=header.order) or popping_refusal(
            self.topics, self.groups, header, peer
        )
        if refused is not None:
            return refused
        left_ms = min((header.born_time_ms or now_ms) + header.poll_time_ms - now_ms, header.poll_time_ms)
        has_message = self.has_message(header)
        if has_message or left_ms <= ENDS_SOON_MS:
            return MessageAwaited(has_message).to_command()
        size_bytes = held_bytes(request, None)
        if not self.waits.held.has_room(peer, size_bytes):
            return MessageAwaited(has_message=False, polling_full=True).to_command()
        return _HeldNotification(self, header, peer, size_bytes, left_ms)

    def polling_info(self, request: Command, peer: Peer) -> Answer:
        header = GetPollingInfo.from_command(request)
        refused = broker_refusal(self.settings, "peeking message") or popping_refusal(
            self.topics, self.groups, header, peer
        )
        if refused is not None:
            return refused
        waiter = Waiter(header.topic, header.consumer_group, max(header.queue_id, -1))
        return PollingInfo(self.waits.count(waiter)).to_command()

    def has_message(self, header: AwaitMessage) -> bool:
        """Returns whether the group has a message to pop: in the topic's queue, in any, or in a retry topic."""
        queues = [(header.topic, header.queue_id)] if header.queue_id >= 0 else self._queues_of(header.topic)
        for mark in (RETRY_V1, RETRY_V2):
            queues += self._queues_of(pop_retry_topic(header.topic, header.consumer_group, mark))
        return any(self._has_more(header.consumer_group, *queue) for queue in queues)

    def _queues_of(self, topic: str) -> list[tuple[str, int]]:
        config = self.topics.get(topic)
        return [] if config is None else [(topic, queue_id) for queue_id in range(config.read_queue_nums)]

    def _has_more(self, group: str, topic: str, queue_id: int) -> bool:
        start, end = self.reader.bounds((topic, queue_id))
        committed = self.offsets.committed(group, topic, queue_id)
        return end > (start if committed is None else committed)


class _HeldNotification(LateAnswer):
    """The answer to a notification that waits for a message, or for the end of its time."""

    __slots__ = ("_header", "_held", "_left_ms", "_peer", "_requests", "_size_bytes", "_waiter")

    def __init__(
        self, requests: NotificationRequests, header: AwaitMessage, peer: Peer, size_bytes: int, left_ms: int
    ) -> None:
        self._requests, self._header, self._peer = requests, header, peer
        self._size_bytes, self._left_ms = size_bytes, left_ms
        self._waiter = Waiter(header.topic, header.consumer_group, max(header.queue_id, -1), takes=False)
        self._held: HeldPull | None = None

    def wait(self, ready: Callable[[LateAnswer], None]) -> None:
        waits, wake = self._requests.waits, partial(ready, self)
        self._held = waits.add(self._waiter, None, self._left_ms, self._peer, self._size_bytes, wake)

    async def make(self) -> Command:
        return MessageAwaited(self._requests.has_message(self._header)).to_command()

    def drop(self) -> None:
        if self._held is not None:
            self._requests.waits.drop(self._waiter, self._held)
