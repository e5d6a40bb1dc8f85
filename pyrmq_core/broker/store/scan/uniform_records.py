"""Runs of records of one queue and one length in the log, checked and made into queue entries by columns.

The messages of a batch usually lie so. Column k is the k-th byte of each record: a field that is equal in all has one
value in its columns, and a field that counts up has the columns of the expected numbers. What is checked is what
`log_scan` checks of each record: a run in which anything is unusual is left to it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from pyrmq_core.broker.store.appending import WITHOUT_TOP_BIT, uniform_entries
from pyrmq_core.broker.store.batch_pieces import UniformPieces
from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC
from pyrmq_core.protocol.messages.record import (
    COMMIT_LOG_OFFSET_POSITION,
    FIXED_V4,
    HEAD,
    INT,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    QUEUE_OFFSET_POSITION,
    SHORT,
    SYS_FLAG_POSITION,
    RawRecord,
    unpack_record,
)
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD, HOSTS_V6, TRANSACTION_MASK

FEWEST: Final = 8
MOST: Final = 2048
CRC_POSITION: Final = 8
QUEUE_ID_POSITION: Final = 12
BODY_LENGTH_POSITION: Final = 84
STORE_TIME_POSITION: Final = 56
LONG: Final = struct.Struct(">q")
# A page of zeros within properties, as a power cut leaves it, is looked for record by record.
MOST_PROPERTIES: Final = 4096
# Batch records, and those of transactions, have entries of their own, or none.
UNUSUAL_FLAGS: Final = HOSTS_V6 | BATCH_RECORD | TRANSACTION_MASK
# The entries of delayed messages hold times.
DELAYED: Final = SCHEDULE_TOPIC.encode()
# A byte of a store time that is 0 in no time between 1970 and 2248 but a few days: they are left, too.
TIME_BYTE: Final = 2


@dataclass(frozen=True, slots=True)
class UniformRecords:
    """A run of `count` records from a log offset on; in each the properties lie at `properties_at`."""

    offset: int
    count: int
    size: int
    queue_id: int
    queue_offset: int
    store_timestamp_ms: int  # the last record's
    topic: bytes
    data: bytes
    properties_at: int

    @property
    def end(self) -> int:
        return self.offset + self.count * self.size

    @property
    def offsets(self) -> range:
        return range(self.offset, self.end, self.size)

    @property
    def pieces(self) -> UniformPieces:
        """The run as batch pieces, so that code for batches can read its properties."""
        return UniformPieces(self.data, self.size, self.properties_at)

    def entries(self) -> bytes:
        """Returns the entries that a plain queue has of the records."""
        return uniform_entries(self.pieces, self.size, struct.pack(f">{self.count}q", *self.offsets))

    def store_times_ms(self) -> Sequence[int]:
        """Returns each record's store time."""
        if self.pieces.is_equal(STORE_TIME_POSITION, STORE_TIME_POSITION + LONG.size):
            return [self.store_timestamp_ms] * self.count
        starts = range(STORE_TIME_POSITION, len(self.data), self.size)
        return [LONG.unpack_from(self.data, at)[0] for at in starts]

    def records(self) -> Iterator[RawRecord]:
        """Yields the records one by one."""
        for position in range(0, len(self.data), self.size):
            yield unpack_record(self.data, position)


def uniform_records(buffer: bytes, position: int, offset: int, most: int) -> UniformRecords | None:
    """Returns the run of records that begins at a position of the buffer, which is at a log offset.

    None for fewer than `FEWEST`, and for records that have to be looked at one by one.
    """
    size, magic = HEAD.unpack_from(buffer, position)
    count = min(most, (len(buffer) - position) // size) if size >= MIN_RECORD_BYTES else 0
    following = position + size
    if count < FEWEST or magic != MAGIC_V1 or buffer[following : following + HEAD.size] != HEAD.pack(size, magic):
        return None
    fields = FIXED_V4.unpack_from(buffer, position)
    queue_id, queue_offset, sys_flag, body_bytes = fields[3], fields[5], fields[7], fields[14]
    topic_at = FIXED_V4.size + body_bytes
    if sys_flag & UNUSUAL_FLAGS or body_bytes < 0 or topic_at >= size:
        return None
    properties_at = topic_at + 1 + buffer[position + topic_at]
    if not 0 <= size - properties_at - SHORT.size <= MOST_PROPERTIES:
        return None
    if SHORT.unpack_from(buffer, position + properties_at)[0] != size - properties_at - SHORT.size:
        return None
    data = buffer[position : position + count * size]
    topic = data[topic_at + 1 : properties_at]
    if topic == DELAYED or b"\0" in topic:
        return None
    count = _uniform_count(data, size, topic_at, properties_at)
    if count < FEWEST:
        return None
    data = data[: count * size]
    if not _is_whole(data, size, offset, queue_offset, topic_at, properties_at):
        return None
    (store_ms,) = LONG.unpack_from(data, (count - 1) * size + STORE_TIME_POSITION)
    return UniformRecords(offset, count, size, queue_id, queue_offset, store_ms, topic, data, properties_at)


def _uniform_count(data: bytes, size: int, topic_at: int, properties_at: int) -> int:
    """Returns how many records from the first on have its lengths, queue, topic and sysFlag."""
    count = len(data) // size
    for at in chain(
        range(HEAD.size),
        range(QUEUE_ID_POSITION, QUEUE_ID_POSITION + INT.size),
        range(SYS_FLAG_POSITION, SYS_FLAG_POSITION + INT.size),
        range(BODY_LENGTH_POSITION, BODY_LENGTH_POSITION + INT.size),
        range(topic_at, properties_at + SHORT.size),
    ):
        column = data[at::size]
        count = min(count, len(column) - len(column.lstrip(column[:1])))
    return count


def _is_whole(data: bytes, size: int, offset: int, queue_offset: int, topic_at: int, properties_at: int) -> bool:
    """Returns True if each record has its place in log and queue, its body's CRC, a time, and an end."""
    count = len(data) // size
    places = struct.pack(f">{count}q", *range(offset, offset + count * size, size))
    if not _has_numbers(data, COMMIT_LOG_OFFSET_POSITION, size, places, LONG.size):
        return False
    indexes = struct.pack(f">{count}q", *range(queue_offset, queue_offset + count))
    if not _has_numbers(data, QUEUE_OFFSET_POSITION, size, indexes, LONG.size):
        return False
    bodies = [data[at : at + topic_at - FIXED_V4.size] for at in range(FIXED_V4.size, len(data), size)]
    crcs = bytearray(struct.pack(f">{count}I", *map(zlib.crc32, bodies)))
    crcs[:: INT.size] = crcs[:: INT.size].translate(WITHOUT_TOP_BIT)
    if not _has_numbers(data, CRC_POSITION, size, crcs, INT.size):
        return False
    has_times = b"\0" not in data[STORE_TIME_POSITION + TIME_BYTE :: size]
    has_ends = properties_at + SHORT.size == size or b"\0" not in data[size - 1 :: size]
    return has_times and has_ends


def _has_numbers(data: bytes, at: int, size: int, packed: bytes | bytearray, width: int) -> bool:
    return all(data[at + column :: size] == packed[column::width] for column in range(width))
