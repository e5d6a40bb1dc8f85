"""`StartOffsets`: the first offset to read in a queue that was assigned to this consumer.

Source: client/impl/consumer/RebalancePushImpl.java, computePullFromWhereWithException (5.4.0).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from pyrmq_core.client.arguments import first_millisecond
from pyrmq_core.client.consumer.offsets.offset_store import OffsetStore
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.model import ConsumeFromWhere, MessageQueue
from pyrmq_core.protocol.messages.names import is_retry_topic

# The default start by TIMESTAMP: this long before the consumer was made.
DEFAULT_AGE: Final = timedelta(minutes=30)


class StartOffsets:
    """The rule of one consumer. `timestamp` has a time zone and counts for TIMESTAMP only."""

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
        """Returns the stored offset, or the offset that `consume_from_where` names.

        Raises `RocketMQError` when it cannot be known. The queue must not be started then.
        """
        stored = await self._store.stored(queue)
        if stored is not None:
            return stored
        match self._where, is_retry_topic(queue.topic):
            case (ConsumeFromWhere.FIRST_OFFSET, _) | (ConsumeFromWhere.LAST_OFFSET, True):
                # The lowest offset may be higher than 0: the broker then answers the first pull with the lowest offset.
                return 0
            case (ConsumeFromWhere.LAST_OFFSET, False) | (ConsumeFromWhere.TIMESTAMP, True):
                return await self._lookups.max_offset(queue)
            case _:
                return await self._lookups.offset_at(queue, self._when_ms)
