"""`TimerFiles`: timer log, wheel and checkpoint together, opened, repaired and synced.

Log and wheel can be rebuilt from the messages in rmq_sys_wheel_timer. A checkpoint is written after log, wheel and
commit log were synced. After a crash, timer-log entries since the checkpoint are linked into the wheel again, and
messages without an entry are read again.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.timers import timer_checkpoint
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from pyrmq_core.servers.broker.timers.timer_log import NO_ENTRY, DamagedTimers, TimerEntry, TimerLog
from pyrmq_core.servers.broker.timers.timer_rules import TimerSettings
from pyrmq_core.servers.broker.timers.timer_wheel import Slot, TimerWheel
from pyrmq_core.servers.broker.timers.topic_counts import TopicCounts, change_of

NOTHING: Final = TimerCheckpoint()
# How many entries `rewrite` writes in one step, which takes a few ms.
REWRITTEN_AT_ONCE: Final = 500


class TimerFiles:
    """The timer log, the timer wheel and their checkpoint.

    `slots` is a heap with the times of the undelivered slots, except the slot that is being delivered.
    """

    def __init__(self, files: Files, settings: TimerSettings) -> None:
        self._files = files
        self._settings = settings
        self.log = TimerLog(files, settings.log_file_bytes)
        self.wheel = TimerWheel(files, settings.precision_ms)
        self.slots: list[int] = []
        self.saved = NOTHING
        self.has_checkpoint = False
        self.may_save = True  # False after a failed sync: a new checkpoint would claim entries that may be lost
        self.is_saving = False  # while another thread writes a checkpoint
        self.last_entry: TimerEntry | None = None  # after `open`: the entry of the newest message
        self.waiting = 0  # messages in undelivered slots, without recalled messages
        self.topics: TopicCounts | None = None  # the waiting messages by topic, if set before `open`

    @property
    def names(self) -> list[str]:
        names = [] if self.log.is_empty else ["timerlog"]
        names += ["timerwheel"] if self.wheel.exists else []
        return [*names, *([timer_checkpoint.PATH] if self.has_checkpoint else [])]

    def open(self, commit_log_end: int) -> str:
        """Opens and repairs the files. Returns "", or the reason why the caller must rebuild log and wheel.

        One reason is an entry whose message lies beyond `commit_log_end`: a power cut lost it. Raises `StoreError` for
        timer-log files whose length is not that of the settings.
        """
        checkpoint = TimerCheckpoint.decode(self._files.load(timer_checkpoint.PATH))
        self.has_checkpoint = checkpoint is not None and checkpoint.read_ms > 0  # an unwritten file has only zeros
        self.saved = saved = checkpoint if checkpoint is not None and self.has_checkpoint else NOTHING
        self.log.open()
        is_whole = self.wheel.open()
        if not is_whole:
            self.wheel.remove()
        if self.log.is_empty:
            return "" if not saved.log_position else "the timer log is missing"
        if not self.has_checkpoint:
            return f"{timer_checkpoint.PATH} is missing"
        if self.log.end < saved.log_position:
            return "the timer log is shorter than its checkpoint says"
        same_slots = saved.precision_ms in (None, self._settings.precision_ms)
        are_linked = True
        if not is_whole or not self.wheel.exists or not same_slots:
            are_linked = self._link_all()
        else:
            # RocketMQ (`log_end` is None) does not sync the wheel with its checkpoint, so more entries are linked.
            start = saved.log_position
            start = start if saved.log_end is not None else max(self.log.start, start - self._settings.log_file_bytes)
            self._link(start)
            if any(slot.last >= self.log.end for _, slot in self.wheel.waiting(saved.read_ms)):
                are_linked = self._link_all()
        last = self.last_entry
        if last is not None and last.physical_offset + last.size > commit_log_end:
            return "the timer log names messages that the commit log lost"
        if not are_linked:
            return "timerwheel cannot be made from the timer log"
        found_slots = list(self.wheel.waiting(saved.read_ms))
        self.slots = [time_ms for time_ms, _ in found_slots]
        self.waiting = sum([slot.number for _, slot in found_slots])
        heapq.heapify(self.slots)
        if self.topics is not None:
            self._count(found_slots, self.topics)
        return ""

    def add(self, entry: TimerEntry) -> int:
        """Writes an entry as the last of its slot and returns its offset. Raises `StoreError` if a write fails."""
        slot, end = self.wheel.slot(entry.slot_ms), self.log.end
        try:
            position = self.log.append(entry._replace(previous=slot.last))
            change = change_of(entry)
            first = slot.first if slot.last > NO_ENTRY else position
            self.wheel.put(entry.slot_ms, Slot(first, position, slot.number + change))
        except StoreError:
            self.log.cut(end)  # otherwise a start after a crash would find this entry, which the caller writes again
            raise
        self.waiting += change
        if self.topics is not None:
            self.topics.add(entry)
        return position

    def rewrite(self, slot_ms: int, positions: Iterable[int], by_topic: Mapping[int, int]) -> Iterator[None]:
        """Replaces a slot's entries by new copies of the entries at `positions` of the timer log, in steps.

        Only the last step changes the slot: if a write fails with `StoreError`, the slot keeps its old entries.
        `by_topic` has the number of messages in the slot before the change, by the hash of their topic.
        """
        before, after, left, total = self.wheel.slot(slot_ms), Slot(), Counter[int](), 0
        for number, position in enumerate(positions, 1):
            entry = self.log.entry(position)
            left[entry.topic_hash] += change_of(entry)
            total += change_of(entry)
            last = self.log.append(entry._replace(previous=after.last))
            after = Slot(last if number == 1 else after.first, last, total)
            if number % REWRITTEN_AT_ONCE == 0:
                yield
        self.wheel.put(slot_ms, after)
        self.waiting = max(0, self.waiting - before.number + after.number)
        if self.topics is not None:
            self.topics.change(by_topic, left)

    def empty(self, slot_ms: int) -> None:
        """Removes the entries of a delivered slot. Raises `StoreError` if that fails."""
        if not self.is_empty(slot_ms):
            self.wheel.put(slot_ms, Slot())

    def expect(self, slot_ms: int) -> None:
        """Adds a slot's time to the heap `slots`, so that the slot is delivered when due."""
        heapq.heappush(self.slots, slot_ms)

    def delivered(self, slot_ms: int, by_topic: Mapping[int, int]) -> None:
        self.waiting = max(0, self.waiting - self.wheel.slot(slot_ms).number)
        if self.topics is not None:
            self.topics.change(by_topic, {})

    def last(self, slot_ms: int) -> int:
        return self.wheel.slot(slot_ms).last

    def is_empty(self, slot_ms: int) -> bool:
        return self.last(slot_ms) == NO_ENTRY

    def chain(self, slot_ms: int, position: int) -> Iterator[tuple[int, TimerEntry]]:
        """Yields the entries of a slot from a position on, newest first. Raises `DamagedTimers` at a wrong entry.

        Entries in removed files are left out, since the commit log no longer has their messages.
        """
        while position >= self.log.start:
            entry = self.log.entry(position)
            if entry.slot_ms // self._settings.precision_ms != slot_ms // self._settings.precision_ms:
                raise DamagedTimers(f"the timer log's entry at {position} belongs to another slot")
            yield position, entry
            position = entry.previous

    def save(self, checkpoint: TimerCheckpoint) -> None:
        """Writes and syncs a checkpoint, unless a later one was saved. Raises `StoreError` if that fails.

        It may be called in any thread, but not in two at the same time.
        """
        if checkpoint.changes <= self.saved.changes:
            return
        file = self._files.open(timer_checkpoint.PATH, timer_checkpoint.BYTES)
        file.write(0, checkpoint.encode())
        file.sync()
        self.saved = checkpoint
        self.has_checkpoint = True

    def syncs(self) -> list[Callable[[], None]]:
        return [*self.log.unsynced(), *self.wheel.unsynced()]

    def remove(self) -> None:
        self.log.remove()
        self.wheel.remove()
        self.slots.clear()
        self.waiting = 0
        self.last_entry = None
        if self.topics is not None:
            self.topics.clear()

    def _count(self, slots: Iterable[tuple[int, Slot]], topics: TopicCounts) -> None:
        for time_ms, slot in slots:
            with contextlib.suppress(DamagedTimers):  # the delivery of the slot will find the damage and repair it
                for _, entry in self.chain(time_ms, slot.last):
                    topics.add(entry)

    def _link_all(self) -> bool:
        self.wheel.remove()
        return self._link(self.log.start)

    def _link(self, start: int) -> bool:
        are_linked = True
        for position, entry in self.log.scan(start):
            if self.last_entry is None or entry.physical_offset > self.last_entry.physical_offset:
                self.last_entry = entry  # not always the log's last entry, which may be a rewritten one
            if entry.slot_ms >= self.saved.read_ms - self._settings.precision_ms:
                slot = self.wheel.slot(entry.slot_ms)
                # False for the first entry of a `rewrite` that a crash ended, since it does not link to `slot.last`.
                if position > slot.last and slot.last in (entry.previous, NO_ENTRY):
                    first = slot.first if slot.last > NO_ENTRY else position
                    self.wheel.put(entry.slot_ms, Slot(first, position, slot.number + change_of(entry)))
                else:
                    are_linked = False
        return are_linked
