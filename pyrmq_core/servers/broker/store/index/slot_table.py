"""The hash slots of one index file in memory, and how they are read from the file and written to it."""

from __future__ import annotations

import mmap
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from pyrmq_core.servers.broker.store.disk.files import StoredFile

CODE: Final = "i"
SLOT_BYTES: Final = 4
# The slots follow the file's header.
FIRST_SLOT_AT: Final = 40
PAGE_BYTES: Final = 4096
ZERO_PAGE: Final = bytes(PAGE_BYTES)
PAGES_AT_ONCE: Final = 256


class SlotTable:
    """The `count` hash slots of one index file in memory. A slot is the number of its newest entry, or 0 if empty.

    Memory pages that were never written take no space. If the file has old slots (`replaces`), `write` overwrites them
    with zeros. Otherwise it skips empty pages, which are empty in the file, too.
    """

    def __init__(self, count: int, *, replaces: bool = False) -> None:
        self._replaces = replaces
        self._count = count
        self._memory = memoryview(_zeros(count * SLOT_BYTES)).cast("B")
        self._slots = self._memory.cast(CODE)

    def newest(self, key_hash: int) -> int:
        return self._slots[key_hash % self._count]

    def set(self, key_hash: int, number: int) -> None:
        self._slots[key_hash % self._count] = number

    def link(self, hashes: Sequence[int], first: int) -> list[int]:
        """Adds entries from number `first` on to their slots. Returns for each the previous entry of its slot, or 0."""
        slots, count = self._slots, self._count
        previous: list[int] = []
        for number, key_hash in enumerate(hashes, first):
            slot = key_hash % count
            previous.append(slots[slot])
            slots[slot] = number
        return previous

    def unlink(self, hashes: Sequence[int], previous: Sequence[int]) -> None:
        for key_hash, number in zip(reversed(hashes), reversed(previous), strict=True):
            self._slots[key_hash % self._count] = number

    def load(self, file: StoredFile, end: int) -> bool:
        """Reads the slots of a file. Returns False if a slot has an entry number that is not below `end`."""
        slots_end = FIRST_SLOT_AT + self._count * SLOT_BYTES
        for position, data in file.pieces(0):
            if position >= slots_end:
                break
            start = max(position, FIRST_SLOT_AT)
            numbers = array(CODE, data[start - position : slots_end - position])
            if sys.byteorder == "little":
                numbers.byteswap()
            if max(numbers, default=0) >= end or min(numbers, default=0) < 0:
                return False
            at = (start - FIRST_SLOT_AT) // SLOT_BYTES
            self._slots[at : at + len(numbers)] = memoryview(numbers)
        return True

    def write(self, file: StoredFile) -> Iterator[None]:
        """Writes the slots to the file in steps of a few pages. Skips empty pages, so that the file stays sparse."""
        slots_end, position = FIRST_SLOT_AT + self._count * SLOT_BYTES, FIRST_SLOT_AT
        while position < slots_end:
            for _ in range(PAGES_AT_ONCE):
                page_end = min(slots_end, position - position % PAGE_BYTES + PAGE_BYTES)
                page = self._memory[position - FIRST_SLOT_AT : page_end - FIRST_SLOT_AT].tobytes()
                zeros = ZERO_PAGE[: len(page)]
                if page != zeros or (self._replaces and file.read(position, len(page)) != zeros):
                    file.write(position, _big_endian(page))
                position = page_end
                if position >= slots_end:
                    break
            yield


def _big_endian(page: bytes) -> bytes:
    numbers = array(CODE, page)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _zeros(size: int) -> mmap.mmap:
    # The system gives memory only to the pages that are written.
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
