"""The removal of single queues: those that an administrator's request selects, and those of old lite topics.

Source of the age at which a lite topic is removed: broker/lite/AbstractLiteLifecycleManager.java (5.5.0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.messages.names import is_lite_queue, is_system_topic, owner_topic
from pyrmq_core.servers.broker.in_turns import InTurns
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.topics import TopicTable

log = line_logger(__name__)

# How many queues are deleted together, since each deletion first syncs the other queues.
AT_ONCE: Final = 100
MINUTE_MS: Final = 60_000
EXPIRATION: Final = "lite.topic.expiration"


async def remove_queues(
    store: MessageStore,
    flusher: Flusher,
    offsets: GroupOffsets,
    has_members: Callable[[str], bool],
    is_gone: Callable[[QueueKey], bool],
) -> None:
    """Deletes the queues for which `is_gone` returns True, except those of RocketMQ's own topics.

    For lite topics, the offsets in deleted queues are deleted, too. Groups for which `has_members` returns True then
    continue at offset 0. Raises `StoreError` if the deletion fails.
    """
    queues = store.queues
    keys = [key for key in queues.by_key if not is_system_topic(key[0])]
    for at in range(0, len(keys), AT_ONCE):
        part = [key async for key in InTurns(keys[at : at + AT_ONCE], 1) if is_gone(key)]  # `is_gone` may read a record
        if part:
            await flusher.flush_queues()  # syncs most in a thread, as the deletion syncs on the loop
        if expired := [key for key in part if key in queues.by_key and is_gone(key)]:
            names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in expired)
            log.info("queues without messages, without a topic or of old lite topics are deleted: %s", names)
            frees = store.delete_queues(expired, [queues.folder(key) for key in expired])
            offsets.forget_lite_queues({topic for topic, _ in expired if is_lite_queue(topic)}, has_members)
            await trio.to_thread.run_sync(_free, frees)


def _free(frees: list[Callable[[], None]]) -> None:
    try:
        for free in frees:
            free()
    except StoreError as error:
        log.warning("the space of deleted queues is not free before the next start: %s", error)


def is_old_lite_queue(
    store: MessageStore, topics: TopicTable, config: BrokerConfig, key: QueueKey, now_ms: int
) -> bool:
    """Returns True for a lite topic's queue that is empty, or whose last message is older than the topic allows."""
    queue = store.queues.get(key) if is_lite_queue(key[0]) else None
    if queue is None or queue.next_offset != queue.end:
        return False
    if queue.start == queue.end:
        return True
    topic = topics.get(owner_topic(key[0]))
    try:
        minutes = -1 if topic is None else int(topic.attributes.get(EXPIRATION, -1))
        stored_ms = store.reader.store_time(key, queue.end - 1) if minutes > 0 else None
    except (StoreError, ValueError):
        return False
    return stored_ms is not None and now_ms - stored_ms > max(minutes * MINUTE_MS, config.min_lite_ttl)
