"""The timer log: one entry for each waiting message, with a link to the previous entry of its slot.

    entry                      bytes
    size                       4      52
    previous entry             8      of the same slot, -1 for the first
    magic                      4      bits. 1: always. 2: stored again for a later slot. 4: recalls another message
    enqueue time               8      ms, rounded down to a slot
    delay                      4      ms from the enqueue time to the slot
    commit-log offset          8      of the message in rmq_sys_wheel_timer
    record size                4
    hash of the real topic     4
    exact time                 8      ms. RocketMQ writes 0 and does not read it

Files have one length and are named after the offset of their first byte. Each ends with a blank entry: its size (4), 8
zeros and a magic number (4). Source: store/timer/TimerLog.java (5.4.0).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.files import Files, StoredFile
from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.store.layout import open_all

FOLDER: Final = "timerlog"
SETTING: Final = "mappedFileSizeTimerLog"
ENTRY: Final = struct.Struct(">iqiqiqiiq")
BLANK: Final = struct.Struct(">iqi")
BLANK_MAGIC: Final = -875286124
NO_ENTRY: Final = -1
DEFAULT: Final = 1
ROLL: Final = 2
DELETE: Final = 4
ALL_MAGIC: Final = 0xF
WINDOW_BYTES: Final = 1 << 14


class DamagedTimers(StoreError):
    """Raised for a wrong entry of the timer log or a wrong slot, after which log and wheel must be rebuilt."""


class TimerEntry(NamedTuple):
    """One entry of the timer log: a waiting message of `size` bytes at `physical_offset` of the commit log.

    `previous` is the timer-log offset of the slot's previous entry. The message entered the timer log at `enqueue_ms`,
    waits in the slot of the time `slot_ms`, and is due at `due_ms`. In `magic`, the bit `ROLL` means that the message
    is then stored again for a later slot, and `DELETE` that it recalls another message.
    """

    previous: int
    magic: int
    enqueue_ms: int
    slot_ms: int
    physical_offset: int
    size: int
    topic_hash: int = 0
    due_ms: int = 0

    def pack(self) -> bytes:
        delay_ms = self.slot_ms - self.enqueue_ms
        message = (self.physical_offset, self.size, self.topic_hash, self.due_ms)
        return ENTRY.pack(ENTRY.size, self.previous, self.magic, self.enqueue_ms, delay_ms, *message)


class TimerLog:
    """The files of the timer log. `end` is the offset of the next entry."""

    def __init__(self, files: Files, file_bytes: int) -> None:
        self._files = files
        self._file_bytes = file_bytes
        self._opened: dict[int, StoredFile] = {}  # by the offset of their first byte, ascending
        self._unsynced: set[int] = set()
        self._newest: dict[int, int] = {}  # by file: the greatest commit-log offset of its entries, if known
        self._window = b""  # bytes of the log as last read, from `_window_start` on
        self._window_start = 0
        self.end = 0

    def open(self) -> None:
        """Opens the files. `end` is the end of the last file until `scan` finds the last entry.

        Raises `StoreError` for a file of the wrong length. All files are marked as unsynced, since a killed process may
        not have synced them.
        """
        self._opened = open_all(self._files, FOLDER, self._file_bytes, SETTING)
        self._unsynced = set(self._opened)
        self._newest.clear()
        self.end = max(self._opened, default=-self._file_bytes) + self._file_bytes

    @property
    def start(self) -> int:
        return next(iter(self._opened), 0)

    @property
    def is_empty(self) -> bool:
        return self.end <= self.start

    def append(self, entry: TimerEntry) -> int:
        """Writes an entry and returns its offset. Raises `StoreError` if the disk is full."""
        left = self._file_bytes - self.end % self._file_bytes
        if left < ENTRY.size + BLANK.size:
            self._write(self.end, BLANK.pack(left, 0, BLANK_MAGIC))
            self.end += left
        position = self.end
        self._write(position, entry.pack())
        self.end = position + ENTRY.size
        base = position - position % self._file_bytes
        if position == base:
            self._newest[base] = entry.physical_offset
        elif base in self._newest:
            self._newest[base] = max(self._newest[base], entry.physical_offset)
        return position

    def entry(self, position: int) -> TimerEntry:
        """Returns the entry at an offset. Raises `DamagedTimers` if there is none."""
        if not self.start <= position <= self.end - ENTRY.size:
            raise DamagedTimers(f"the timer log has no entry at {position}")
        at = position - self._window_start
        if not 0 <= at <= len(self._window) - ENTRY.size:
            self._look_at(position)
            at = position - self._window_start
        entry = _entry(self._window, at, position)
        if entry is None:
            raise DamagedTimers(f"the timer log has no entry at {position}")
        return entry

    def scan(self, start: int) -> Iterator[tuple[int, TimerEntry]]:
        """Yields offsets and entries from `start` on. Afterwards `end` is after the last entry, and zeros follow it."""
        for base in [base for base in self._opened if base + self._file_bytes > start]:
            position = max(base, start)
            for item in self._entries(base, position - base):
                yield item
                position = item[0] + ENTRY.size
            is_blank = self._is_blank(base, position - base)
            if not is_blank:
                self.cut(position)
                return
        self.end = max(self._opened, default=-self._file_bytes) + self._file_bytes

    def cut(self, end: int) -> None:
        self._window = b""
        for base in [base for base in self._opened if base >= end and base > self.start]:
            del self._opened[base]
            self._unsynced.discard(base)
            self._files.remove(f"{FOLDER}/{file_name(base)}")
        base = end - end % self._file_bytes
        if base in self._opened:
            self._opened[base].zero_from(end - base)
            self._unsynced.add(base)
        self.end = end

    def retire_before(self, physical_offset: int) -> list[Callable[[], None]]:
        """Drops the first files whose messages all lie before `physical_offset`, the commit log's start.

        All entries of a file are examined, since a rewritten entry may have an older message than entries before it.
        Returns functions that remove the files, in any thread but in this order.
        """
        removals: list[Callable[[], None]] = []
        for base in list(self._opened)[:-1]:
            last = base + (self._file_bytes - BLANK.size) // ENTRY.size * ENTRY.size - ENTRY.size
            entry = _entry(self._opened[base].read(last - base, ENTRY.size), 0, last)
            if entry is not None and entry.physical_offset >= physical_offset:
                break
            if self._newest_of(base) >= physical_offset:
                break
            del self._opened[base]
            del self._newest[base]
            self._unsynced.discard(base)
            removals.append(self._files.retire(f"{FOLDER}/{file_name(base)}"))
        return removals

    def remove(self) -> None:
        self._files.remove(FOLDER)
        self._opened.clear()
        self._unsynced.clear()
        self._newest.clear()
        self._window = b""
        self.end = 0

    def unsynced(self) -> list[Callable[[], None]]:
        syncs = [self._opened[base].sync for base in self._unsynced]
        self._unsynced.clear()
        return syncs

    def _write(self, position: int, data: bytes) -> None:
        base = position - position % self._file_bytes
        file = self._opened.get(base)
        if file is None:
            file = self._opened[base] = self._files.open(f"{FOLDER}/{file_name(base)}", self._file_bytes)
        file.write(position - base, data)
        self._unsynced.add(base)
        self._window = self._window[: max(0, position - self._window_start)]

    def _newest_of(self, base: int) -> int:
        if base not in self._newest:
            self._newest[base] = max((entry.physical_offset for _, entry in self._entries(base, 0)), default=-1)
        return self._newest[base]

    def _look_at(self, position: int) -> None:
        base = position - position % self._file_bytes
        if base not in self._opened:
            raise DamagedTimers(f"the timer log has no file for its entry at {position}")
        start = (position - base) // WINDOW_BYTES * WINDOW_BYTES
        count = min(WINDOW_BYTES + ENTRY.size, self._file_bytes - start, self.end - base - start)
        self._window, self._window_start = self._opened[base].read(start, count), base + start

    def _entries(self, base: int, position: int) -> Iterator[tuple[int, TimerEntry]]:
        file = self._opened[base]
        last = self._file_bytes - BLANK.size - ENTRY.size
        while position <= last:
            count = min(WINDOW_BYTES, last + ENTRY.size - position) // ENTRY.size * ENTRY.size
            data = file.read(position, count)
            for at in range(0, count, ENTRY.size):
                entry = _entry(data, at, base + position + at)
                if entry is None:
                    return
                yield base + position + at, entry
            position += count

    def _is_blank(self, base: int, position: int) -> bool:
        if position + BLANK.size > self._file_bytes:
            return False
        size, _, magic = BLANK.unpack(self._opened[base].read(position, BLANK.size))
        return bool(magic == BLANK_MAGIC and size == self._file_bytes - position)


def _entry(data: bytes, at: int, position: int) -> TimerEntry | None:
    size, previous, magic, enqueue_ms, delay_ms, log_offset, length, topic_hash, due_ms = ENTRY.unpack_from(data, at)
    if size != ENTRY.size or not 0 < magic <= ALL_MAGIC or not NO_ENTRY <= previous < position:
        return None
    if log_offset < 0 or length <= 0:
        return None
    return TimerEntry(previous, magic, enqueue_ms, enqueue_ms + delay_ms, log_offset, length, topic_hash, due_ms)
