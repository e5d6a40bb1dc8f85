"""`OffsetStore`: stores how far each queue is consumed. `RemoteOffsetStore` stores it at the brokers.

Java sends every offset every 5 s. Here an offset is sent when it has changed, and once a minute, since a crashed broker
loses the offsets that it received last. Source: client/consumer/store/OffsetStore.java, RemoteBrokerOffsetStore.java
(5.4.0).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import trio

from pyrmq_core.client.arguments import first_millisecond
from pyrmq_core.client.consumer.offsets.offsets_in_memory import ConsumedOffset, OffsetsInMemory
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.errors import PeerError, RocketMQError
from pyrmq_core.model import ConsumeFromWhere, MessageQueue
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.messages.names import is_retry_topic

COMMITS_AT_ONCE: Final = 32
SEND_ALL_SECONDS: Final = 60.0
COMMIT: Final = "storing offsets at"


class OffsetStore(Protocol):
    """The offsets of one consumer's queues: in memory, and at the brokers or in a file."""

    async def load(self) -> None:
        """Reads the stored offsets if they are in a file. Raises `StoreError` if the file cannot be read."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None: ...

    def freeze(self, queue: MessageQueue, offset: int) -> None: ...

    def known(self, queue: MessageQueue) -> int | None: ...

    async def stored(self, queue: MessageQueue) -> int | None:
        """Returns the queue's stored offset, or None, and sets the offset in memory to it.

        An offset in memory that still has to be stored is not changed. Raises `RocketMQError` if the stored offset
        cannot be read now.
        """

    async def persist(self, queues: Collection[MessageQueue], *, confirmed: bool = False) -> None:
        """Stores the changed offsets of these queues. A failure is logged, and the next call stores the offset again.

        With `confirmed` the call returns when the store has acknowledged the offsets, including offsets that were sent
        before but never acknowledged.
        """

    def forget(self, queue: MessageQueue) -> None: ...


class RemoteOffsetStore(OffsetsInMemory):
    """The store of a clustering consumer's offsets at the brokers, for its group."""

    def __init__(self, lookups: QueueOffsets, problems: Problems) -> None:
        super().__init__()
        self._lookups = lookups
        self._problems = problems
        # Commits to one broker follow one another, since a late commit would overwrite a newer one.
        self._locks: dict[str, trio.Lock] = {}
        self._all_sent_at: float | None = None

    async def load(self) -> None:
        """Does nothing, since the offset of a queue is read when the consumer starts to read the queue."""

    async def stored(self, queue: MessageQueue) -> int | None:
        """Returns the group's committed offset at the broker, or None if there is none.

        Some brokers answer 0 if the group has committed none: 4.9 does so for every queue, 5.x for a queue that still
        has its first message.
        """
        before = self.known(queue)
        offset = await self._lookups.committed(queue, zero_if_young=True)
        if offset is None or offset < 0:
            return None
        self._adopt(queue, offset, before)
        if offset == 0:
            self._send_again([queue])  # the next `persist` commits offset 0, as a Java client does
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, confirmed: bool = False) -> None:
        """Sends the changed offsets as one-way requests, or with `confirmed` as requests that brokers answer.

        The first request to each broker is always one that the broker answers, so that a refusal is noticed.
        """
        now = trio.current_time()
        if self._all_sent_at is None:
            self._all_sent_at = now
        elif now - self._all_sent_at >= SEND_ALL_SECONDS:
            self._all_sent_at = now
            self._send_again(queues)
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self._changed(queues, confirmed=confirmed):
            by_broker.setdefault(queue.broker_name, []).append(queue)
        permits = trio.Semaphore(COMMITS_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for broker_name, changed in by_broker.items():
                nursery.start_soon(self._persist_at, broker_name, changed, confirmed, permits)

    async def _persist_at(
        self, broker_name: str, queues: list[MessageQueue], confirmed: bool, permits: trio.Semaphore
    ) -> None:
        """Stores the changed offsets of one broker's queues: one alone, then the others if the broker answered."""
        async with self._locks.setdefault(broker_name, trio.Lock()):
            changed = list(self._changed(queues, confirmed=confirmed).items())
            if changed and await self._commit(*changed[0], True, permits):
                async with trio.open_nursery() as nursery:
                    for queue, consumed in changed[1:]:
                        nursery.start_soon(self._commit, queue, consumed, confirmed, permits)

    async def _commit(
        self, queue: MessageQueue, consumed: ConsumedOffset, confirmed: bool, permits: trio.Semaphore
    ) -> bool:
        async with permits:
            offset = consumed.begin_sending()
            try:
                if confirmed:
                    await self._lookups.commit(queue, offset)
                else:
                    await self._lookups.commit_oneway(queue, offset)
            except RocketMQError as error:
                self._problems.failed(COMMIT, queue.broker_name, error, at_once=True)
                return isinstance(error, PeerError)
            consumed.end_sending(offset, confirmed=confirmed)
            if confirmed:
                self._problems.passed(COMMIT, queue.broker_name)
            return True


# Without a timestamp, a start by TIMESTAMP begins this long before the consumer was created.
DEFAULT_AGE: Final = timedelta(minutes=30)


class StartOffsets:
    """The rule for the offset at which a consumer begins to read an assigned queue.

    It is the stored offset. If there is none, `where` decides: the first offset, the last, or that of the time
    `timestamp`. Source: client/impl/consumer/RebalancePushImpl.java, computePullFromWhereWithException (5.4.0).
    """

    def __init__(
        self,
        lookups: QueueOffsets,
        store: OffsetStore,
        where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET,
        timestamp: datetime | None = None,
    ) -> None:
        self._lookups = lookups
        self._store = store
        self._where = where
        self._when_ms = first_millisecond(datetime.now(UTC) - DEFAULT_AGE if timestamp is None else timestamp)

    async def start_of(self, queue: MessageQueue) -> int:
        stored = await self._store.stored(queue)
        if stored is not None:
            return stored
        match self._where, is_retry_topic(queue.topic):
            case (ConsumeFromWhere.FIRST_OFFSET, _) | (ConsumeFromWhere.LAST_OFFSET, True):
                # If the lowest offset is higher, the broker's answer to the first pull names it.
                return 0
            case (ConsumeFromWhere.LAST_OFFSET, False) | (ConsumeFromWhere.TIMESTAMP, True):
                return await self._lookups.max_offset(queue)
            case _:
                return await self._lookups.offset_at(queue, self._when_ms)
