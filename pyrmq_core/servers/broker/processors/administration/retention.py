"""An administrator's requests to remove old segments (329), queues without messages (306) or without a topic (316).

Source: broker/processor/AdminBrokerProcessor.java, store/queue/ConsumeQueueStore.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.names import owner_topic
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.processors.handlers import Handlers
from pyrmq_core.servers.broker.processors.put_message import RequestRefused, refused_by_disk
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.store_services.queue_removal import remove_queues
from pyrmq_core.servers.broker.store_services.retention import Retention
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.topics import TopicTable


@dataclass(frozen=True, slots=True)
class RetentionRequests:
    retention: Retention
    store: MessageStore
    flusher: Flusher
    topics: TopicTable
    offsets: GroupOffsets
    clients: ClientTable

    def handlers(self) -> Handlers:
        return {
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_log,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
        }

    def delete_expired_log(self, _request: Command, _: Peer) -> Command:
        self.retention.remove_by_hand()
        return success()

    async def clean_expired_queues(self, _request: Command, _: Peer) -> Command:
        """Deletes the queues of which retention removed all messages. Such a queue begins at offset 0 again."""
        return await self._delete_queues(self.store.queues.is_expired)

    async def clean_unused_topics(self, _request: Command, _: Peer) -> Command:
        return await self._delete_queues(lambda key: owner_topic(key[0]) not in self.topics)

    async def _delete_queues(self, is_gone: Callable[[QueueKey], bool]) -> Command:
        try:
            with refused_by_disk():
                await remove_queues(self.store, self.flusher, self.offsets, self.clients.has_members, is_gone)
        except RequestRefused as refused:
            return refusal(refused.code, str(refused))
        return success()
