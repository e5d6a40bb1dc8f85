"""The checkpoint files, which record up to which point commit log, queues and key index are synced to the disk.

    checkpoint                 bytes  RocketMQ's file. A time is the store time of the last synced message, in ms
    log flushed to             8      a time
    queues flushed to          8      a time
    index flushed to           8      a time
    slave flushed offset       8
    confirmed offset           8
    queues synced to           8      a log offset, 0 for unknown. RocketMQ recovers from it since 5.5.0
    zeros                      to 4096

    checkpoint.pyrmq           bytes  this broker's own file
    mark                       8      `PYRMQ\\0\\0\\6`
    RocketMQ's fields          48     a copy of the fields above
    queues                     4      number of queues with entries
    entries                    8      number of entries of all queues before "queues synced to", with removed entries
    log start                  8      retention removed the log up to this offset: later bytes that are missing are lost
    index file                 8      the name, a number, of the newest file of the index that is full and synced
    CRC                        4      CRC-32 of all fields before
    zeros                      to 4096

This broker's file is synced before RocketMQ's is written, so that a crash leaves RocketMQ's with the same times or
earlier ones. If the times in RocketMQ's are later, another broker has used the store since. Then this broker's file is
ignored.

Source: store/StoreCheckpoint.java (5.4.0, 5.5.0).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.layout import CHECKPOINT_NAME, OWN_CHECKPOINT_NAME

BYTES: Final = 4096
FIELDS: Final = struct.Struct(">qqqqqq")
OWN: Final = struct.Struct(">8s48siqqq")
CRC: Final = struct.Struct(">I")
MARK: Final = b"PYRMQ\0\0\6"
NO_FILE: Final = -1
# RocketMQ subtracts this margin from the earlier flush time (StoreCheckpoint.getMinTimestamp).
MARGIN_MS: Final = 3000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The saved progress of syncing: the store times and offsets up to which log, queues and key index are on the disk.

    Two files have it: RocketMQ's has the first five fields, and `checkpoint.pyrmq` the others. If the second file is
    missing, damaged or older, `safe_offset` is None. Else recovery reads the commit log from `safe_offset` on.
    """

    log_time_ms: int = 0
    queue_time_ms: int = 0
    index_time_ms: int = 0
    slave_offset: int = 0
    confirmed_offset: int = 0
    safe_offset: int | None = None
    queues: int = 0
    entries: int = 0
    log_start: int = 0
    index_file: int | None = None

    @property
    def safe_time_ms(self) -> int:
        """The store time in ms up to which all messages are certainly synced, in the commit log and in the queues."""
        return max(0, min(self.log_time_ms, self.queue_time_ms) - MARGIN_MS)

    def encode(self) -> bytes:
        times = (self.log_time_ms, self.queue_time_ms, self.index_time_ms)
        offsets = (self.slave_offset, self.confirmed_offset, self.safe_offset or 0)
        return FIELDS.pack(*times, *offsets).ljust(BYTES, b"\0")

    def encode_own(self) -> bytes:
        if self.safe_offset is None:
            return bytes(BYTES)
        index_file = NO_FILE if self.index_file is None else self.index_file
        common = self.encode()[: FIELDS.size]
        fields = OWN.pack(MARK, common, self.queues, self.entries, self.log_start, index_file)
        return (fields + CRC.pack(zlib.crc32(fields))).ljust(BYTES, b"\0")

    @staticmethod
    def decode(data: bytes | None, own_data: bytes | None = None) -> Checkpoint:
        """Decodes RocketMQ's file (`data`) and this broker's own. Returns defaults if `data` is missing or short."""
        if data is None or len(data) < FIELDS.size:
            return Checkpoint()
        (*values, _) = FIELDS.unpack_from(data)
        checkpoint = Checkpoint(*values)
        if own_data is None or len(own_data) < OWN.size + CRC.size:
            return checkpoint
        mark, common, queues, entries, log_start, index_file = OWN.unpack_from(own_data)
        (crc,) = CRC.unpack_from(own_data, OWN.size)
        if mark != MARK or crc != zlib.crc32(own_data[: OWN.size]):
            return checkpoint
        own = replace(Checkpoint(*FIELDS.unpack(common)), queues=queues, entries=entries, log_start=log_start)
        own = own if index_file == NO_FILE else replace(own, index_file=index_file)
        is_later = checkpoint.log_time_ms > own.log_time_ms or checkpoint.queue_time_ms > own.queue_time_ms
        return checkpoint if is_later else own


class CheckpointFiles:
    """The two checkpoint files: this broker's own, written first, and RocketMQ's. `value` is the newest state."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.value = Checkpoint()
        self._own = b""
        self._synced = b""  # this broker's own file as it was last synced, or empty
        self._published = b""
        self._handed_out = Checkpoint()

    def load(self) -> Checkpoint:
        self._own = self._files.load(OWN_CHECKPOINT_NAME) or b""
        self._published = self._files.load(CHECKPOINT_NAME) or b""
        self.value = Checkpoint.decode(self._published, self._own)
        return self.value

    def remove_wrong(self) -> None:
        """Removes a checkpoint file that is not 4096 bytes long. If it is RocketMQ's, sets `safe_offset` to None."""
        if len(self._own) != BYTES:
            self._files.remove(OWN_CHECKPOINT_NAME)
        if len(self._published) != BYTES:
            self._files.remove(CHECKPOINT_NAME)
            self.value = replace(self.value, safe_offset=None)

    def write(self, value: Checkpoint) -> None:
        """Makes `value` the newest state, and writes it to this broker's own checkpoint file, without a sync.

        Raises `StoreError`, with nothing changed, if the write fails.
        """
        data = value.encode_own()
        if data != self._own:
            self._files.open(OWN_CHECKPOINT_NAME, BYTES).write(0, data)
            self._own = data
        self.value = value

    def unsynced(self) -> list[Callable[[], None]]:
        """Returns functions that sync this broker's own file. Another thread runs them before `publish` is called."""
        self._handed_out = self.value
        return [] if self._own == self._synced else [self.sync_own]

    def publish(self) -> None:
        """Writes the state that the functions of `unsynced` have synced to RocketMQ's checkpoint file, without a sync.

        Raises `StoreError` if the write fails.
        """
        self._synced = self._handed_out.encode_own()
        data = self._handed_out.encode()
        if data != self._published:
            self._files.open(CHECKPOINT_NAME, BYTES).write(0, data)
            self._published = data

    def sync_own(self) -> None:
        self._files.open(OWN_CHECKPOINT_NAME, BYTES).sync()

    def sync_published(self) -> None:
        self._files.open(CHECKPOINT_NAME, BYTES).sync()
