"""The file `config/timercheck`: the progress of timer delivery, from which the next start continues.

    field                      bytes
    read time                  8      slots before it are delivered. All times are in ms
    timer log synced to        8
    queue offset               8      of rmq_sys_wheel_timer: messages before it are in the timer log, or delivered
    master's queue offset      8      equal to the queue offset on a master
    state version              8      this and the next two are RocketMQ's DataVersion
    time of the last change    8
    number of changes          8
    zeros                      8      this and all fields after it are not RocketMQ's
    mark                       8      `PYRMQTM1`
    commit log                 8      copies that were delivered after this checkpoint have a later commit-log offset
    precision                  4      of the slots, in ms
    CRC                        4      of all fields before, which shows whether another broker has changed them
    zeros                      to 4096

Source: store/timer/TimerCheckpoint.java (5.4.0).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Final, Self

from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.timers import timer_log, timer_wheel
from pyrmq_core.servers.broker.timers.timer_log import TimerEntry
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_QUEUE, TOPIC_BYTES

PATH: Final = "config/timercheck"
BYTES: Final = 4096
FIELDS: Final = struct.Struct(">qqqqqqq")
OWN: Final = struct.Struct(">8x8sqi")
CRC: Final = struct.Struct(">I")
MARK: Final = b"PYRMQTM1"

# The most bytes of the commit log in which a start searches for delivered copies, which takes some 20 s.
MAX_LOOKED_AT_BYTES: Final = 4 << 30


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """The saved progress of the timers, with times in ms since 1970.

    All slots before `read_ms` are delivered. Messages of rmq_sys_wheel_timer before `queue_offset` are delivered, or in
    the timer log, which is synced up to `log_position`. `state_version`, `changed_ms` and `changes` are RocketMQ's
    DataVersion. Copies delivered after the checkpoint are in the commit log after `log_end`. `log_end` and
    `precision_ms`, the length of a slot, are None if RocketMQ wrote the file.
    """

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    changes: int = 0
    log_end: int | None = None
    precision_ms: int | None = None

    def encode(self) -> bytes:
        fields = self.encode_fields()
        if self.log_end is not None:
            fields += OWN.pack(MARK, self.log_end, self.precision_ms or 0)
            fields += CRC.pack(zlib.crc32(fields))
        return fields.ljust(BYTES, b"\0")

    def encode_fields(self) -> bytes:
        """Encodes only RocketMQ's fields, for the body of GET_TIMER_CHECK_POINT."""
        return FIELDS.pack(
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.queue_offset,
            self.state_version,
            self.changed_ms,
            self.changes,
        )

    @classmethod
    def decode(cls, data: bytes | None) -> Self | None:
        if data is None or len(data) < FIELDS.size:
            return None
        read_ms, position, offset, masters, version, changed_ms, changes = FIELDS.unpack_from(data)
        values = (read_ms, position, min(offset, masters), version, changed_ms, changes)
        fields_end = FIELDS.size + OWN.size
        if len(data) < fields_end + CRC.size or CRC.unpack_from(data, fields_end)[0] != zlib.crc32(data[:fields_end]):
            return cls(*values)
        mark, log_end, precision_ms = OWN.unpack_from(data, FIELDS.size)
        return cls(*values, log_end, precision_ms) if mark == MARK else cls(*values)


def keep_checkpoint(files: Files, checkpoint: TimerCheckpoint) -> None:
    """Saves the master's timer checkpoint on its slave, in any thread. Raises `StoreError` if that fails.

    Deletes the timer log and wheel that the slave may have from its time as a master. If it becomes the master again,
    it rebuilds them, and the checkpoint says which messages were delivered. The saved `log_position` is at least 1, so
    that the next start notices that the timer log is missing.
    """
    for path in (timer_log.FOLDER, timer_wheel.PATH):
        files.remove(path)
    kept = replace(checkpoint, log_position=max(1, checkpoint.log_position), log_end=None, precision_ms=None)
    file = files.open(PATH, BYTES)
    file.write(0, kept.encode())
    file.sync()


def next_offset(store: MessageStore, saved: TimerCheckpoint, last: TimerEntry | None) -> int:
    record = None if last is None else store.reader.record_of(last.physical_offset, last.size)
    if record is None or record.topic != TOPIC_BYTES:
        return saved.queue_offset
    after = record.queue_offset + 1
    # A checkpoint of RocketMQ has no `log_end`. Its queue offset may be too high, since it is written before the timer
    # log is synced.
    return max(saved.queue_offset, after) if saved.log_end is not None else after


def processed_end(store: MessageStore, saved: TimerCheckpoint) -> int | None:
    """Returns the commit-log offset from which to search for copies delivered since RocketMQ's checkpoint was written.

    A start does not deliver the messages of these copies again. The search begins before the messages of both read time
    and queue offset, which RocketMQ may have written at different moments. If that is too much of the log, only the
    read time counts. Returns None if that is still too much, or if there are no timer messages.
    """
    start, end = store.reader.bounds(TIMER_QUEUE)
    if start >= end:
        return None
    offset = min(saved.queue_offset - 1, store.reader.search(TIMER_QUEUE, saved.read_ms, upper=True))
    offset = min(max(offset, start), end - 1)
    log_offset = max(store.reader.entry(TIMER_QUEUE, offset).physical_offset, store.reader.place_before(saved.read_ms))
    places = [log_offset]
    if saved.queue_offset < end:
        places.insert(
            0, min(log_offset, store.reader.entry(TIMER_QUEUE, max(saved.queue_offset, start)).physical_offset)
        )
    return next((position for position in places if store.end - position <= MAX_LOOKED_AT_BYTES), None)
