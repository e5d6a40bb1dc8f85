"""`OpenSlot`: the messages of the slot that is being delivered, in the order of their exact times.

A message takes 8 bytes of memory, for the offset of its entry in the timer log. A recall, which is a message that
cancels another one, takes some 100 bytes more, for a digest of that message's topic and UNIQ_KEY.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

from pyrmq_core.servers.broker.timers.timer_log import DELETE, ROLL, TimerEntry
from pyrmq_core.servers.broker.timers.topic_counts import change_of

# The bytes of a message's digest, enough that no two messages have an equal one.
DIGEST_BYTES: Final = 16


class OpenSlot:
    """The undelivered timer-log entries of one slot of the timer wheel.

    Entries that are due at the same time are delivered in the order of the sends.
    """

    def __init__(self, slot_ms: int, precision_ms: int) -> None:
        self.slot_ms = slot_ms
        self.end_ms = slot_ms + precision_ms
        self.by_topic = Counter[int]()  # the number of the slot's messages, by the hash of their topic
        self._taken_back: set[bytes] = set()
        self._deletes = array("q")  # entries of recalls, newest first
        self._late_deletes = array("q")  # recalls stored after the slot was opened, oldest first
        self._linked: dict[int, array[int]] = {}  # by exact time: entries, newest first
        self._times: list[int] = []  # the times of `_linked`, descending
        self._late: list[tuple[int, int]] = []  # a heap of times and entries stored after the slot was opened
        self._given_back: list[tuple[int, int]] = []  # times and entries, the next one last

    def link(self, position: int, entry: TimerEntry) -> None:
        """Adds an existing entry, at the offset `position` of the timer log, while the slot is being opened.

        The caller adds the entries from the newest to the oldest, and then calls `sort`.
        """
        self.by_topic[entry.topic_hash] += change_of(entry)
        if takes_back(entry):
            self._deletes.append(position)
        else:
            self._linked.setdefault(self._exact(entry), array("q")).append(position)

    def sort(self) -> None:
        self._times = sorted(self._linked, reverse=True)

    def add(self, position: int, entry: TimerEntry) -> None:
        self.by_topic[entry.topic_hash] += change_of(entry)
        if takes_back(entry):
            self._late_deletes.append(position)
        else:
            heapq.heappush(self._late, (self._exact(entry), position))

    def take_back(self, topic: str, unique_id: str) -> None:
        self._taken_back.add(_digest(topic, unique_id))

    def is_taken_back(self, topic: str, unique_id: str) -> bool:
        return bool(self._taken_back) and _digest(topic, unique_id) in self._taken_back

    @property
    def next_ms(self) -> int | None:
        if self._given_back:
            return self._given_back[-1][0]
        due_ms = self._times[-1] if self._times else None
        late_ms = self._late[0][0] if self._late else due_ms
        return late_ms if due_ms is None or (late_ms is not None and late_ms < due_ms) else due_ms

    def take(self, now_ms: int) -> tuple[int, int] | None:
        """Removes the next due entry and returns its time in ms and its timer-log offset, or None if none is due."""
        due_ms = self.next_ms
        if due_ms is None or due_ms > now_ms:
            return None
        if self._given_back:
            return self._given_back.pop()
        if not self._times or self._times[-1] != due_ms:
            return heapq.heappop(self._late)
        positions = self._linked[due_ms]
        position = positions.pop()
        if not positions:
            del self._linked[due_ms]
            self._times.pop()
        return due_ms, position

    def give_back(self, entries: Sequence[tuple[int, int]]) -> None:
        """Puts back entries that `take` returned, in the same order. `take` returns them next."""
        self._given_back += reversed(entries)

    def left(self) -> Iterator[int]:
        """Yields the timer-log offsets of all undelivered entries: first recalls, then messages by time and arrival."""
        yield from reversed(self._deletes)
        yield from self._late_deletes
        yield from [position for _, position in reversed(self._given_back)]
        for due_ms in reversed(self._times):
            yield from reversed(self._linked[due_ms])
        yield from [position for _, position in sorted(self._late)]

    def _exact(self, entry: TimerEntry) -> int:
        """Returns an entry's exact due time, or the slot's end for an entry by RocketMQ, which stores no exact time."""
        return entry.due_ms if self.slot_ms < entry.due_ms <= self.end_ms else self.end_ms


def takes_back(entry: TimerEntry) -> bool:
    return bool(entry.magic & DELETE) and not entry.magic & ROLL


def _digest(topic: str, unique_id: str) -> bytes:
    return blake2b(f"{topic}\0{unique_id}".encode(), digest_size=DIGEST_BYTES).digest()
