"""`ReviveLog`: encodes checkpoints and acknowledgements as timer messages, and restores offsets from them.

Committed offsets are written to their file at intervals, while a checkpoint is in the log at once. After a kill
`restore_offsets` moves a group's offset past the messages that newer checkpoints show as popped. Source:
broker/processor/PopMessageProcessor.java (buildCkMsg), AckMessageProcessor.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.messages.properties import TAGS, TIMER_DELIVER_MS, UNIQ_KEY, encode_properties
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.pop.records import BadEntry, CheckPoint, ReviveEntry, read_entry
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_QUEUE, TimerSettings, place_timer

log = line_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReviveLog:
    """The revive log of this broker: a topic of `queues` queues with checkpoints and acknowledgements."""

    topic: str
    queues: int
    broker_name: str
    identity: Identity
    timers: TimerSettings

    def append(self, entry: ReviveEntry, revive_queue_id: int, now_ms: int) -> Append:
        """Returns the message to store for an entry. Raises `BadTimer` if its time is too far ahead."""
        properties = {TAGS: entry.tag, UNIQ_KEY: entry.unique_id, TIMER_DELIVER_MS: str(entry.deliver_ms)}
        waits = place_timer(properties, self.topic, revive_queue_id, now_ms, self.timers)
        topic, queue_id = TIMER_QUEUE if waits else (self.topic, revive_queue_id)
        host = self.identity.store_host
        return Append(
            topic=topic,
            queue_id=queue_id,
            pieces=[piece(0, entry.body, encode_properties(properties).encode("utf-8", "replace"))],
            born_timestamp_ms=now_ms,
            born_host=host,
            store_host=host,
        )

    def read(self, record: RawRecord) -> tuple[ReviveEntry | None, int]:
        """Decodes an entry and its delivery time in ms. Logs a malformed record, and returns None and 0 for it."""
        try:
            return read_entry(record, self.broker_name)
        except BadEntry as error:
            log.error("entry %d of %s is passed over: %s", record.queue_offset, self.topic, error)
            return None, 0

    def restore_offsets(self, reader: StoreReader, offsets: GroupOffsets) -> int:
        """Moves groups' offsets past the messages that checkpoints show as popped. Returns how many it moved. Blocks.

        Reads only checkpoints that were written after the offsets' file, which includes the effect of earlier ones.
        """
        if offsets.saved_ms is None:
            return 0
        raised: set[tuple[str, str, int]] = set()
        for key in (TIMER_QUEUE, *((self.topic, queue_id) for queue_id in range(self.queues))):
            for point in self._check_points(reader, key, reader.search(key, offsets.saved_ms, upper=False)):
                queue, behind = (point.key.group, point.key.topic, point.key.queue_id), max(point.offsets) + 1
                if (offsets.committed(*queue) or 0) < behind <= reader.bounds(queue[1:])[1]:
                    offsets.commit(*queue, behind)
                    raised.add(queue)
        return len(raised)

    def _check_points(self, reader: StoreReader, key: QueueKey, start: int) -> Iterator[CheckPoint]:
        low, high = reader.bounds(key)
        for offset in range(max(start, low), high):
            pointer = reader.entry(key, offset)
            record = reader.record_of(pointer.physical_offset, pointer.size)
            if record is None or (key == TIMER_QUEUE and self.topic.encode() not in record.properties):
                continue
            entry, _ = self.read(record)
            if isinstance(entry, CheckPoint) and entry.offsets:
                yield entry
