"""`config/timercheck`: where a start goes on.

    field                      bytes
    read time                  8      slots before it are delivered; all times in ms
    timer log synced to        8
    queue offset               8      of rmq_sys_wheel_timer: messages before it are in the timer log, or delivered
    master's queue offset      8      the same on a master
    state version              8      the last three are RocketMQ's DataVersion
    time of the last change    8
    number of changes          8
    zeros                      8      this and the next four are not RocketMQ's
    mark                       8      `PYRMQTM1`
    commit log                 8      copies that were delivered later than this checkpoint lie behind this offset
    precision                  4      of the slots, in ms
    CRC                        4      of all fields before: another broker's change makes the mark invalid
    zeros                      to 4096

Source: store/timer/TimerCheckpoint.java (5.4.0).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final, Self

PATH: Final = "config/timercheck"
BYTES: Final = 4096
FIELDS: Final = struct.Struct(">qqqqqqq")
OWN: Final = struct.Struct(">8x8sqi")
CRC: Final = struct.Struct(">I")
MARK: Final = b"PYRMQTM1"


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """The state of timers; in RocketMQ's file `log_end` and `precision_ms` are None."""

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
        """Returns RocketMQ's fields alone: the body of GET_TIMER_CHECK_POINT."""
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
        """Returns the checkpoint of a file; None if it is missing or too short."""
        if data is None or len(data) < FIELDS.size:
            return None
        read_ms, position, offset, masters, version, changed_ms, changes = FIELDS.unpack_from(data)
        known = (read_ms, position, min(offset, masters), version, changed_ms, changes)
        whole = FIELDS.size + OWN.size
        if len(data) < whole + CRC.size or CRC.unpack_from(data, whole)[0] != zlib.crc32(data[:whole]):
            return cls(*known)
        mark, log_end, precision_ms = OWN.unpack_from(data, FIELDS.size)
        return cls(*known, log_end, precision_ms) if mark == MARK else cls(*known)
