"""The search in the commit log for delayed messages that were delivered after `delayOffset.json` was written.

A delivered message is stored in its own topic, with the properties of the delayed message. It is recognized by topic,
queue, level, UNIQ_KEY, born time, number of retries and the CRC of its body. So neither a restart after a kill nor a
slave that is started as the master delivers a message twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC
from pyrmq_core.protocol.messages.properties import DELAY, REAL_TOPIC, UNIQ_KEY, decode_java_utf8, decode_properties
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.servers.broker.store.scan.log_scan import Hole, LogEnd

MARK: Final = f"{DELAY}\x01".encode()
REAL_MARK: Final = f"{REAL_TOPIC}\x01".encode()
SCHEDULE: Final = SCHEDULE_TOPIC.encode()


class CopyKey(NamedTuple):
    """The values by which a delivered message is recognized as the copy of a delayed message."""

    topic: str
    queue_id: int
    level: str
    unique_id: str
    born_ms: int
    reconsume_times: int
    body_crc: int


def copy_key(record: RawRecord, properties: dict[str, str], topic: str, queue_id: int) -> CopyKey:
    texts = properties.get(DELAY, ""), properties.get(UNIQ_KEY, "")
    return CopyKey(topic, queue_id, *texts, record.born_timestamp_ms, record.reconsume_times, record.body_crc)


class DelayCopies:
    """The number of deliveries found in the commit log, by key. `take` subtracts one."""

    def __init__(self) -> None:
        self._keys: Counter[CopyKey] = Counter()

    def find(self, records: Iterable[RawRecord | Hole | LogEnd], end: int) -> Iterator[None]:
        """Counts the deliveries among the records before log offset `end`. Yields after each record."""
        for record in records:
            if isinstance(record, RawRecord):
                if record.commit_log_offset >= end:
                    break
                if MARK in record.properties and REAL_MARK in record.properties and record.topic != SCHEDULE:
                    self._take_in(record)
            yield

    def _take_in(self, record: RawRecord) -> None:
        properties, topic = decode_properties(decode_java_utf8(record.properties)), decode_java_utf8(record.topic)
        if properties.get(REAL_TOPIC) == topic:
            self._keys[copy_key(record, properties, topic, record.queue_id)] += 1

    def take(self, key: CopyKey) -> bool:
        """Returns True and subtracts one if a delivery with this key was found and not yet taken."""
        if not self._keys[key]:
            return False
        self._keys[key] -= 1
        return True
