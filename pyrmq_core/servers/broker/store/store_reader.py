"""`StoreReader`: reads messages of a store by topic, queue and offset, by time, or by position in the log."""

from __future__ import annotations

import contextlib
from collections.abc import Container
from typing import Final

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.servers.broker.store.batch_queue import BatchEntry
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.formats import Entry
from pyrmq_core.servers.broker.store.queue_table import QueueTable, slots_of
from pyrmq_core.servers.broker.store.reading import (
    GetLimits,
    GetResult,
    QueueKey,
    read_messages,
    search_time,
    stored_ms,
)
from pyrmq_core.servers.broker.store.scan.log_scan import record_at, record_bytes, scan

# The most queues that one call searches by time; each search reads some 20 messages.
SEARCHED_QUEUES: Final = 200


class StoreReader:
    """The reading side of a store, over its log and its queues. Everything blocks and is called by one thread."""

    def __init__(self, log: CommitLog, queues: QueueTable) -> None:
        self._log = log
        self._queues = queues

    def get(self, key: QueueKey, offset: int, limits: GetLimits, tags_codes: Container[int] | None = None) -> GetResult:
        return read_messages(self._log, self._queues.get(key), key, offset, limits, tags_codes)

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """Returns a queue's lowest offset and the offset after its last message, or zeros for an unknown queue."""
        queue = self._queues.get(key)
        return (0, 0) if queue is None else (queue.start, queue.end)

    def queues_of(self, topic: str) -> list[int]:
        return sorted(queue_id for name, queue_id in self._queues.by_key if name == topic)

    def store_time(self, key: QueueKey, offset: int) -> int | None:
        """Returns the store time in ms of the message at a queue offset, or None if there is no such message.

        Raises `StoreError` if the queue's entry refers to another record.
        """
        queue = self._queues.get(key)
        return None if queue is None else stored_ms(self._log, queue, key, offset)

    def entry(self, key: QueueKey, offset: int) -> Entry | BatchEntry:
        """Returns the queue entry at a readable offset. Raises `StoreError` if there is none."""
        queue = self._queues.get(key)
        if queue is None or not queue.start <= offset < queue.end:
            raise StoreError(f"queue {key[1]} of {key[0]} has no entry {offset}")
        return queue.entry(offset)

    def search(self, key: QueueKey, timestamp_ms: int, *, upper: bool) -> int:
        queue = self._queues.get(key)
        return 0 if queue is None else search_time(self._log, queue, key, timestamp_ms, upper=upper)

    def earliest_ms(self) -> int:
        """Returns the store time in ms of the oldest message in the log, or -1 if it is empty."""
        first = next(scan(self._log, self._log.start))
        return first.store_timestamp_ms if isinstance(first, RawRecord) else -1

    def log_part(self, offset: int, most: int) -> bytes:
        return self._log.part(offset, most)

    def record(self, offset: int) -> bytes | None:
        return record_bytes(self._log, offset)

    def record_of(self, offset: int, size: int) -> RawRecord | None:
        return record_at(self._log, offset, size) if 0 <= offset <= self._log.end - size else None

    def place_before(self, time_ms: int) -> int:
        """Returns a log offset before which all messages are older than `time_ms`, the latest that a search finds.

        Only the `SEARCHED_QUEUES` queues that got messages last are searched, so a later such offset may exist.
        """
        position = self._log.start
        for last, key in sorted(self._last_messages(), reverse=True)[:SEARCHED_QUEUES]:
            if last <= position:
                break
            with contextlib.suppress(StoreError):  # a damaged queue is left out
                before = self.search(key, time_ms, upper=False) - 1
                if before >= self.bounds(key)[0]:
                    position = max(position, self.entry(key, before).physical_offset)
        return position

    def last_message(self) -> int | None:
        """Returns the physical offset of the last message that a queue refers to, or None if all queues are empty."""
        return max([offset for offset, _ in self._last_messages()], default=None)

    def _last_messages(self) -> list[tuple[int, QueueKey]]:
        last = []
        for key, queue in self._queues.by_key.items():
            slots = slots_of(queue)
            if slots.end > slots.start:
                with contextlib.suppress(StoreError):  # a damaged queue is left out
                    last.append((slots.entry(slots.end - 1).physical_offset, key))
        return last
