"""One file of the index: a header, a table of hash slots, and entries. The entries of one slot form a linked list.

    header                     bytes
    begin time                 8      store time of the first entry, in ms
    end time                   8      of the last entry
    begin offset               8      log offset of the first entry's record
    end offset                 8      of the last entry's record
    used slots                 4
    next entry                 4      1 in an empty file: entry 0 is never used
    slots                      4      each: number of its newest entry, 0 if empty
    entries                    20     each

    entry                      bytes
    hash of the key            4
    log offset of the record   8
    seconds                    4      of the store time after the file's begin time, cut to a positive int
    previous entry             4      of the same slot, 0 without one

A key's slot is its hash modulo the number of slots. The slots of a file that is not full are in memory, since writes to
them would be scattered over the file. They are written when the file is full or the store is closed. A killed process
loses none, since they can be rebuilt from the entries. Sources: store/index/IndexFile.java, IndexHeader.java (5.4.0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.java.integers import MAX_INT
from pyrmq_core.servers.broker.store.disk.files import StoredFile
from pyrmq_core.servers.broker.store.index.entries import Entries, packed
from pyrmq_core.servers.broker.store.index.slot_table import SlotTable

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")
NO_ENTRY: Final = 0
FIRST_ENTRY: Final = 1
MILLISECONDS: Final = 1000
ENTRIES_AT_ONCE: Final = 1024


@dataclass(frozen=True, slots=True)
class Layout:
    """The numbers of slots and entries in a file (maxHashSlotNum, maxIndexNum). Entry 0 is never used."""

    slots: int = 5_000_000
    entries: int = 20_000_000

    @property
    def file_bytes(self) -> int:
        return self.entry_at(self.entries)

    def slot_at(self, slot: int) -> int:
        return HEADER.size + slot * SLOT.size

    def entry_at(self, number: int) -> int:
        return HEADER.size + self.slots * SLOT.size + number * ENTRY.size


class Header(NamedTuple):
    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    next_entry: int = FIRST_ENTRY


class IndexEntry(NamedTuple):
    key_hash: int
    offset: int
    seconds: int
    previous: int


class IndexFile:
    """One file of the index of keys.

    Entries can be added after `begin` (a new file), `load_slots` or `relink` (an existing file) until `seal`. During
    that time the table of slots is in memory.
    """

    def __init__(self, file: StoredFile, name: str, layout: Layout, header: Header) -> None:
        self.file = file
        self.name = name
        self.layout = layout
        self.header = header
        self._slots: SlotTable | None = None
        self._written_to = FIRST_ENTRY  # the slots in the file include all entries before this number

    @property
    def room(self) -> int:
        return self.layout.entries - self.header.next_entry

    @property
    def takes_entries(self) -> bool:
        return self._slots is not None

    def begin(self) -> None:
        self._slots = SlotTable(self.layout.slots)

    def load_slots(self) -> bool:
        """Reads the slots that a clean stop wrote to the file. Returns False if a slot refers to a missing entry."""
        table = SlotTable(self.layout.slots)
        if not table.load(self.file, self.header.next_entry):
            return False
        self._slots, self._written_to = table, self.header.next_entry
        return True

    def relink(self, end_offset: int) -> Iterator[None]:
        """Rebuilds the slots from the entries, in steps. Drops the first wrong entry and all after it.

        An entry is wrong if it is out of the order of log offsets, not before `end_offset`, or not linked to its slot's
        previous entry, as after a power cut. If entries are dropped, the caller must correct the header's `end_ms`.
        """
        table = self._slots = SlotTable(self.layout.slots, replaces=True)
        number, most = FIRST_ENTRY, min(self.header.next_entry, self.layout.entries)
        first = last = used = 0
        while number < most:
            count = min(ENTRIES_AT_ONCE, most - number)
            hashes, offsets, _, previous = zip(*self.entries(number, count), strict=True)
            right = _ascending(offsets, last, end_offset) if min(hashes) >= 0 else 0
            linked = table.link(hashes[:right], number)
            if linked != list(previous[:right]):
                table.unlink(hashes[:right], linked)
                right = [link == other for link, other in zip(linked, previous, strict=False)].index(False)
                linked = table.link(hashes[:right], number)
            used += linked.count(NO_ENTRY)
            if right:
                first, last = offsets[0] if number == FIRST_ENTRY else first, offsets[right - 1]
            number += right
            if right < count:
                break
            yield
        self.header = self.header._replace(begin_offset=first, end_offset=last, used_slots=used, next_entry=number)

    def append(self, new: Entries) -> None:
        """Adds at most `room` entries. If it raises `StoreError`, as on a full disk, none of them is added."""
        old, table = self.header, self._table()
        is_first = old.next_entry == FIRST_ENTRY
        seconds = _all_seconds(new.times_ms, new.times_ms[0] if is_first else old.begin_ms)
        if is_first:
            seconds[0] = _seconds(new.times_ms[0], old.begin_ms)
        previous = table.link(new.hashes, old.next_entry)
        try:
            data = packed(new.hashes, new.offsets, seconds, previous)
            self._write(data, new.offsets, new.times_ms, previous.count(NO_ENTRY))
        except StoreError:
            table.unlink(new.hashes, previous)
            raise

    def _write(self, data: bytes, offsets: Sequence[int], times_ms: Sequence[int], used_slots: int) -> None:
        old = self.header
        is_first = old.next_entry == FIRST_ENTRY
        try:
            self.file.write(self.layout.entry_at(old.next_entry), data)
            self.header = Header(
                begin_ms=times_ms[0] if is_first else old.begin_ms,
                end_ms=times_ms[-1],
                begin_offset=offsets[0] if is_first else old.begin_offset,
                end_offset=offsets[-1],
                used_slots=old.used_slots + used_slots,
                next_entry=old.next_entry + len(data) // ENTRY.size,
            )
            self.write_header()
        except StoreError:
            self.header = old
            raise

    def write_header(self) -> None:
        self.file.write(0, HEADER.pack(*self.header))

    def unwritten(self) -> Iterator[None]:
        number = self.header.next_entry
        if number != self._written_to:
            yield from self._table().write(self.file)
            self._written_to = number

    def save(self) -> bool:
        """Writes and syncs the file. Returns False if that fails."""
        try:
            for _ in self.unwritten():
                pass
            self.file.sync()
        except StoreError:
            return False
        return True

    def seal(self) -> None:
        """Drops the slots from memory after they were written. No more entries can be added."""
        self._slots = None

    def newest(self, key_hash: int) -> int:
        """Returns the number of the newest entry in the slot of a hash, or 0 if the slot is empty."""
        if self._slots is not None:
            return self._slots.newest(key_hash)
        at = self.layout.slot_at(key_hash % self.layout.slots)
        number: int = SLOT.unpack(self.file.read(at, SLOT.size))[0]
        return number if FIRST_ENTRY <= number < self.header.next_entry else NO_ENTRY

    def entry(self, number: int) -> IndexEntry:
        return IndexEntry._make(ENTRY.unpack(self.file.read(self.layout.entry_at(number), ENTRY.size)))

    def entries(self, number: int, count: int) -> Iterator[tuple[int, int, int, int]]:
        return ENTRY.iter_unpack(self.file.read(self.layout.entry_at(number), count * ENTRY.size))

    def count_last(self, offset: int) -> int:
        """Returns how many entries at the end of the file belong to the record at the log offset `offset`."""
        end = number = self.header.next_entry
        while number > FIRST_ENTRY:
            count = min(ENTRIES_AT_ONCE, number - FIRST_ENTRY)
            for entry in reversed([*self.entries(number - count, count)]):
                if entry[1] != offset:
                    return end - number
                number -= 1
        return end - number

    def chain(self, key_hash: int) -> Iterator[IndexEntry]:
        """Yields the entries of a hash's slot, the newest first, until the end or a damaged entry."""
        number = self.newest(key_hash)
        while number >= FIRST_ENTRY:
            entry = self.entry(number)
            yield entry
            number = entry.previous if entry.previous < number else NO_ENTRY

    def store_ms(self, entry: IndexEntry) -> int:
        return self.header.begin_ms + entry.seconds * MILLISECONDS

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Returns True if the file may have messages stored from `begin_ms` to `end_ms`, by the times in its header.

        If the clock was set back, the header's end time may be before its begin time. The comparison is RocketMQ's.
        """
        first, last = self.header.begin_ms, self.header.end_ms
        return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last

    def _table(self) -> SlotTable:
        if self._slots is None:
            raise StoreError(f"index file {self.name} takes no more entries")
        return self._slots


def _seconds(time_ms: int, begin_ms: int) -> int:
    return min(max(0, (time_ms - begin_ms) // MILLISECONDS), MAX_INT) if begin_ms > 0 else 0


def _all_seconds(times_ms: Sequence[int], begin_ms: int) -> list[int]:
    if times_ms.count(times_ms[0]) == len(times_ms):
        return [_seconds(times_ms[0], begin_ms)] * len(times_ms)
    seconds_of = {time_ms: _seconds(time_ms, begin_ms) for time_ms in set(times_ms)}
    return [seconds_of[time_ms] for time_ms in times_ms]


def _ascending(offsets: Sequence[int], lowest: int, end: int) -> int:
    if offsets[0] >= lowest and offsets[-1] < end and list(offsets) == sorted(offsets):
        return len(offsets)
    for count, offset in enumerate(offsets):
        if not lowest <= offset < end:
            return count
        lowest = offset
    return len(offsets)


def name_of_time(time_ms: int) -> str:
    """Returns the name of a file that begins at a time: the digits from year to millisecond of local time."""
    try:
        time = datetime.fromtimestamp(time_ms // 1000)
    except (OSError, OverflowError, ValueError):
        return "0"
    return f"{time:%Y%m%d%H%M%S}{time_ms % 1000:03d}"
