"""The timer wheel: a slot for each second of 14 days by default, after which the first slot is used again.

    slot                       bytes
    time                       8      divided by the precision. For any other time the slot counts as empty
    first entry                8      its offset in the timer log
    last entry                 8      its offset. From there each entry links to the previous one
    number                     4      of messages, less recalled messages
    magic                      4      0

The file is sparse: only written slots take disk space. Source: store/timer/TimerWheel.java, Slot.java (5.4.0).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyrmq_core.servers.broker.store.disk.files import Files, StoredFile
from pyrmq_core.servers.broker.timers.timer_log import NO_ENTRY

PATH: Final = "timerwheel"
SLOT: Final = struct.Struct(">qqqii")
SLOTS: Final = 2 * 7 * 24 * 3600
WHEEL_BYTES: Final = SLOTS * SLOT.size
# The slots that are read at a time. If all are zeros, they are skipped together.
COUNTED_AT_ONCE: Final = 1024
NO_SLOTS: Final = bytes(COUNTED_AT_ONCE * SLOT.size)


class Slot(NamedTuple):
    """A slot's first and last entry, NO_ENTRY if it is empty, and its number of messages."""

    first: int = NO_ENTRY
    last: int = NO_ENTRY
    number: int = 0


class TimerWheel:
    """The file of the timer wheel's slots, which is created when the first slot is written."""

    def __init__(self, files: Files, precision_ms: int) -> None:
        self._files = files
        self._precision_ms = precision_ms
        self._file: StoredFile | None = None
        self._is_unsynced = False

    def open(self) -> bool:
        """Opens the wheel's file if it exists, and marks it for the next sync. Returns False if its length is wrong."""
        size = self._files.size(PATH)
        if size is not None and size != WHEEL_BYTES:
            return False
        self._file = None if size is None else self._files.open(PATH, WHEEL_BYTES)
        self._is_unsynced = self._file is not None
        return True

    @property
    def exists(self) -> bool:
        return self._file is not None

    def slot(self, time_ms: int) -> Slot:
        if self._file is None:
            return Slot()
        number = time_ms // self._precision_ms
        time, first, last, count, _ = SLOT.unpack(self._file.read(number % SLOTS * SLOT.size, SLOT.size))
        return Slot(first, last, count) if time == number else Slot()

    def put(self, time_ms: int, slot: Slot) -> None:
        if self._file is None:
            self._file = self._files.open(PATH, WHEEL_BYTES)
        number = time_ms // self._precision_ms
        count = min(max(slot.number, -(2**31)), 2**31 - 1)
        self._file.write(number % SLOTS * SLOT.size, SLOT.pack(number, slot.first, slot.last, count, 0))
        self._is_unsynced = True

    def waiting(self, from_ms: int) -> Iterator[tuple[int, Slot]]:
        """Yields the time in ms and the slot of each slot with entries from the time `from_ms` on, in any order."""
        if self._file is None:
            return
        low = max(1, from_ms // self._precision_ms)
        for start, data in self._file.pieces(0):
            aligned = -start % SLOT.size
            usable = (len(data) - aligned) // SLOT.size * SLOT.size
            index = (start + aligned) // SLOT.size
            for time, first, last, count, _ in SLOT.iter_unpack(data[aligned : aligned + usable]):
                if low <= time < low + SLOTS and last > NO_ENTRY and time % SLOTS == index:
                    yield time * self._precision_ms, Slot(first, last, count)
                index += 1

    def number(self, from_ms: int, until_ms: int) -> int:
        """Returns the number of messages in the slots from `from_ms` to before `until_ms`, both in ms since 1970.

        The range may have at most `SLOTS` slots.
        """
        low, high, total = from_ms // self._precision_ms, until_ms // self._precision_ms, 0
        while self._file is not None and low < high:
            index = low % SLOTS
            read = min(high - low, SLOTS - index, COUNTED_AT_ONCE)
            data = self._file.read(index * SLOT.size, read * SLOT.size)
            if data != NO_SLOTS[: len(data)]:
                slots = enumerate(SLOT.iter_unpack(data), low)
                total += sum([slot[3] for expected, slot in slots if slot[0] == expected])
            low += read
        return total

    def remove(self) -> None:
        self._file = None
        self._is_unsynced = False
        self._files.remove(PATH)

    def unsynced(self) -> list[Callable[[], None]]:
        if self._file is None or not self._is_unsynced:
            return []
        self._is_unsynced = False
        return [self._file.sync]
