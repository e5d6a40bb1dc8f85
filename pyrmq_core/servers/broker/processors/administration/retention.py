"""Requests of an administrator to remove old segments (329), queues without messages (306) or without a topic (316).

Source: broker/processor/AdminBrokerProcessor.java, store/queue/ConsumeQueueStore.java (5.4.0). All answer success.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network import Peer
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.names import is_system_topic
from pyrmq_core.servers.broker.processors.handlers import Handlers
from pyrmq_core.servers.broker.processors.put_message import RequestRefused, refused_by_disk
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.store_services.retention import Retention
from pyrmq_core.servers.broker.tables.topics import TopicTable

log = line_logger(__name__)

# The queues that are deleted together: each time the rest of the store is synced first.
AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class RetentionRequests:
    """The handlers of an administrator's requests to remove old segments of the log and unused queues."""

    retention: Retention
    store: MessageStore
    flusher: Flusher
    topics: TopicTable

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
        """Deletes queues of which retention has removed every message: such a queue begins at 0 again."""
        return await self._delete_queues(self.store.queues.is_expired)

    async def clean_unused_topics(self, _request: Command, _: Peer) -> Command:
        return await self._delete_queues(lambda key: key[0] not in self.topics)

    async def _delete_queues(self, is_gone: Callable[[QueueKey], bool]) -> Command:
        """Deletes the queues that `is_gone` accepts, a few at a time. Queues of RocketMQ's own topics stay."""
        queues = self.store.queues
        keys = [key for key in queues.by_key if not is_system_topic(key[0])]
        try:
            for at in range(0, len(keys), AT_ONCE):
                part = [key for key in keys[at : at + AT_ONCE] if is_gone(key)]
                if part:
                    await (
                        self.flusher.flush_queues()
                    )  # in a thread, so that deleting has little left to flush on the loop
                if expired := [key for key in part if key in queues.by_key and is_gone(key)]:
                    names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in expired)
                    log.info("queues without messages or without a topic are deleted: %s", names)
                    with refused_by_disk():
                        frees = self.store.delete_queues(expired, [queues.folder(key) for key in expired])
                    for free in frees:
                        await trio.to_thread.run_sync(free)
                await trio.lowlevel.checkpoint()
        except RequestRefused as refused:
            return refusal(refused.code, str(refused))
        except StoreError as error:
            log.warning("the space of deleted queues is not free before the next start: %s", error)
        return success()
