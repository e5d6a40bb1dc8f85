"""`TimerStore`: reads timer messages from rmq_sys_wheel_timer into the timer files, and delivers them when due.

A message waits in a slot of the timer wheel. The slot is opened at its time, and each of its messages is stored in its
real topic at its exact time. A message is delivered at once if its slot is over when it is read. After a start, all
stored messages are read first, since a later one may recall an earlier one. A waiting message takes 52 bytes of the
timer log, and no memory until its slot is open.

`work` does one short step, of about `STEP_BYTES` of messages. Two steps may take long: the search for delivered copies
in the commit log at a rebuild, and the syncs of all files after the clock was set back.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.timers.open_slot import OpenSlot, takes_back
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint, next_offset, processed_end
from pyrmq_core.servers.broker.timers.timer_copies import NEVER_ENQUEUED, NoTimer, TimerMessage, read_message
from pyrmq_core.servers.broker.timers.timer_delivery import MESSAGE_BYTES, STEP_BYTES, TimerDelivery
from pyrmq_core.servers.broker.timers.timer_files import TimerFiles
from pyrmq_core.servers.broker.timers.timer_log import DEFAULT, DELETE, NO_ENTRY, ROLL, DamagedTimers, TimerEntry
from pyrmq_core.servers.broker.timers.timer_rules import (
    TIMER_DEL_UNIQKEY,
    TIMER_QUEUE,
    TIMER_TOPIC,
    TOPIC_BYTES,
    TimerSettings,
    exact_ms,
    rolled_slot,
)
from pyrmq_core.servers.broker.timers.timer_wheel import SLOTS
from pyrmq_core.servers.broker.timers.topic_counts import topic_hash

LINKED_AT_ONCE: Final = 1000
EMPTIED_AT_ONCE: Final = 1000
FAR_MS: Final = 1 << 50
# After a rebuild, a message that rolls counts as delivered if its slot is more than this many before the read time.
MARGIN_SLOTS: Final = 2


@dataclass(frozen=True, slots=True)
class Earlier:
    """The progress of timer delivery before the timer files were rebuilt, so that no message is delivered twice.

    Messages of rmq_sys_wheel_timer before `queue_offset` are delivered already if their slot's time is before
    `read_ms`.
    """

    queue_offset: int = 0
    read_ms: int = 0


class TimerStore:
    """The waiting timer messages of one broker.

    `open` must be called first. `on_taken` is called with each message that is read. `removals` has functions that
    remove files of the timer log, in any thread but in this order.
    """

    def __init__(
        self,
        store: MessageStore,
        files: Files,
        settings: TimerSettings,
        *,
        warn: Callable[[str], None] = lambda line: None,
        on_taken: Callable[[TimerMessage], None] = lambda message: None,
        on_delivered: Callable[[str, int], None] = lambda topic, size_bytes: None,
    ) -> None:
        self._store = store
        self._settings = settings
        self.files = TimerFiles(files, settings)
        self.delivery = TimerDelivery(store, warn, on_delivered)
        self._on_taken = on_taken
        self.queue_offset = 0
        self._read_ms = 0
        self._slot: OpenSlot | None = None
        self._linking: int | None = None  # the next entry of the open slot to read, or None if all are read
        self._leaving: Iterator[None] | None = None  # the steps that close the open slot before it is delivered
        self._opened_at = 0  # the commit log's end when the slot was opened
        self._earlier = Earlier()
        self._known_end = 0  # the queue's end at the opening: messages before it may recall each other
        self.removals: list[Callable[[], None]] = []

    def open(self, now_ms: int) -> list[str]:
        """Opens the timer files of an opened store. Returns lines for the caller to log."""
        start, end = self._store.reader.bounds(TIMER_QUEUE)
        self._known_end = end
        damage = self.files.open(self._store.end)
        saved = self.files.saved
        self._read_ms = saved.read_ms
        lines = []
        if not self.files.names:
            if end > start:
                lines.append(
                    f"{TIMER_TOPIC} has {end - start} messages, and timerlog, timerwheel and config/timercheck are "
                    "missing: all are read again, and those that are due are delivered, perhaps once more"
                )
            self.queue_offset = start
        elif damage:
            lines.append(self._rebuild(damage))
        else:
            self.queue_offset = min(max(next_offset(self._store, saved, self.files.last_entry), start), max(start, end))
            if saved.log_end is None:
                lines.append(
                    f"timers: taken over from RocketMQ's files ({', '.join(self.files.names)}): "
                    f"{len(self.files.slots)} slots with messages, read time {saved.read_ms}, queue offset "
                    f"{self.queue_offset} of {end}"
                )
        log_end = processed_end(self._store, saved) if saved.log_end is None else saved.log_end
        if log_end is not None:
            self.delivery.find_copies(log_end, now_ms)
        with contextlib.suppress(StoreError):  # if the disk is full, `work` tries again
            self._begin(now_ms)
        return lines

    def work(self, now_ms: int) -> int:
        """Does one step: reads new timer messages or delivers due ones. Returns the ms until the next call.

        It can be called again after a `StoreError`.
        """
        try:
            if self._leaving is not None or self._floor(now_ms) < self._read_ms:
                self._go_back(self._floor(now_ms))
                return 0
            is_behind = self._read(now_ms)
            self.delivery.copies.forget(self.queue_offset, self._oldest_ms())
            if is_behind and self.queue_offset < self._known_end:
                return 0
            if self._deliver(now_ms) or is_behind:
                return 0
            self.delivery.report()
            return self._wait_ms(now_ms)
        except DamagedTimers as error:
            self.delivery.warn(self._rebuild(str(error)))
            return 0

    def state(self, now_ms: int) -> TimerCheckpoint:
        """Returns the current progress. Timer files and commit log must be synced before it is saved."""
        # After the clock was set back, later slots may still have entries of delivered messages.
        read_ms = max(self._floor(now_ms), self._read_ms) if self._slot is None else self._slot.slot_ms
        if self._slot is None and self.files.slots:
            read_ms = min(read_ms, self.files.slots[0])
        saved = self.files.saved
        return TimerCheckpoint(
            read_ms=read_ms,
            log_position=self.files.log.end,
            queue_offset=self.queue_offset,
            state_version=saved.state_version,
            changed_ms=now_ms,
            changes=saved.changes + 1,
            log_end=self._needed_from(),
            precision_ms=self._settings.precision_ms,
        )

    @property
    def unread(self) -> int:
        return max(0, self._store.reader.bounds(TIMER_QUEUE)[1] - self.queue_offset)

    def late_ms(self, now_ms: int) -> int:
        return max(0, now_ms - self._oldest_ms() - self._settings.precision_ms)

    @property
    def progress(self) -> tuple[int, int]:
        """The commit log's end, and the time in ms before which all slots are delivered.

        While both are unchanged, no new checkpoint is needed.
        """
        return self._store.end, self._read_ms

    def close(self, now_ms: int) -> None:
        """Writes the files so that a next start, even RocketMQ's, delivers no message twice. May raise `StoreError`."""
        if self.files.names:
            log_end, slot = self.state(now_ms).log_end, self._slot
            for _ in self._leaving or self._leave_slot():
                pass
            self._store.flush()
            for sync in self.files.syncs():
                sync()
            state = replace(self.state(now_ms), log_end=log_end)
            if slot is not None and self.files.is_empty(slot.slot_ms):  # or RocketMQ would link the slot's old entries
                state = replace(state, read_ms=slot.end_ms)
            self.files.save(state)
        self.delivery.report()

    def _leave_slot(self) -> Iterator[None]:
        slot = self._slot
        if slot is None:
            return
        if self._linking is None:
            self._store.flush()  # otherwise a power cut could lose a copy whose message is no longer in its slot
            yield from self.files.rewrite(slot.slot_ms, slot.left(), slot.by_topic)
        has_entries = not self.files.is_empty(slot.slot_ms)
        self._slot = self._linking = None  # after the read, which may fail
        if has_entries:
            self.files.expect(slot.slot_ms)

    def _go_back(self, write_ms: int) -> None:
        """Sets the progress of delivery back towards the time `write_ms`, in steps, after the clock was set back.

        The delivered slots between are emptied, so that new messages can wait in them. If a slot is open, it is closed
        first.
        """
        if self._slot is not None:
            self._leaving = self._leaving or self._leave_slot()
            if next(self._leaving, True):
                self._leaving = None
            return
        self._read_ms = min(self._read_ms, write_ms + SLOTS * self._settings.precision_ms)
        for _ in range(EMPTIED_AT_ONCE):
            if self._read_ms <= write_ms:
                break
            slot_ms = self._floor(self._read_ms - 1)
            self.files.empty(slot_ms)
            self._read_ms = slot_ms

    def _needed_from(self) -> int:
        opened_at = self._store.end if self._slot is None else self._opened_at
        return opened_at if self.delivery.copies.start is None else min(opened_at, self.delivery.copies.start)

    def _oldest_ms(self) -> int:
        if self._slot is not None:
            return self._slot.slot_ms
        return self.files.slots[0] if self.files.slots else FAR_MS

    def _rebuild(self, reason: str) -> str:
        saved = self.files.saved
        if self._slot is not None:
            since = self._opened_at if saved.log_end is None else min(saved.log_end, self._opened_at)
            self.delivery.find_copies(since, self._slot.end_ms)
        self._slot = self._linking = self._leaving = None
        self.files.remove()
        self._earlier = Earlier(max(saved.queue_offset, self.queue_offset), max(saved.read_ms, self._read_ms))
        oldest_ms = self._earlier.read_ms - self._settings.max_delay_ms - self._settings.precision_ms
        self.queue_offset = self._store.reader.search(TIMER_QUEUE, oldest_ms, upper=False)
        return (
            f"timers: {reason}; timerlog and timerwheel are built anew from the messages of {TIMER_TOPIC} from "
            f"{self.queue_offset} on, and none is lost"
        )

    # --- Into the wheel

    def _read(self, now_ms: int) -> bool:
        start, end = self._store.reader.bounds(TIMER_QUEUE)
        offset = max(self.queue_offset, start)
        self._begin(now_ms)
        left_bytes = STEP_BYTES
        while offset < end and left_bytes > 0:
            entry = self._store.reader.entry(TIMER_QUEUE, offset)
            left_bytes -= max(entry.size, MESSAGE_BYTES)
            record = None if entry.is_filler else self._store.reader.record_of(entry.physical_offset, entry.size)
            if record is not None:
                try:
                    if (record.topic, record.queue_offset) != (TOPIC_BYTES, offset):
                        raise NoTimer("its queue entry names another record")
                    message = read_message(record)
                except NoTimer as error:
                    self.delivery.warn(f"message {offset} of {TIMER_TOPIC} is not delivered: {error}")
                else:
                    self._take(message, now_ms)
            elif not entry.is_filler:
                self.delivery.note_unreadable(entry.physical_offset)
            offset += 1
            self.queue_offset = offset
        return offset < end

    def _begin(self, now_ms: int) -> None:
        """Writes the first checkpoint. After the clock was set back, writes the last one again with the present time.

        Otherwise a start after a kill would skip the slots between the two times.
        """
        write_ms = self._floor(now_ms)
        if not self.files.has_checkpoint:
            self.files.save(self.state(now_ms))
        while self.files.may_save and self._read_ms <= write_ms < (saved := self.files.saved).read_ms:
            if self.files.is_saving:
                raise StoreError("the clock was set back while a checkpoint was written; it is tried again")
            try:
                for sync in self.files.syncs():
                    sync()
            except StoreError:
                self.files.may_save = False
                raise
            self.files.save(replace(saved, read_ms=write_ms, changes=saved.changes + 1))

    def _take(self, message: TimerMessage, now_ms: int) -> None:
        precision_ms, record = self._settings.precision_ms, message.record
        write_ms = self._floor(now_ms)
        if self._was_delivered(message):
            return
        self._on_taken(message)
        if message.out_ms < write_ms and not self._is_of_past_slot(message, write_ms):
            if TIMER_DEL_UNIQKEY not in message.properties:
                self.delivery.store_copy(message, NEVER_ENQUEUED, now_ms)
            return
        slot_ms, rolls = rolled_slot(self._floor(message.out_ms), write_ms, self._settings)
        magic = DEFAULT | (ROLL if rolls else 0) | (DELETE if TIMER_DEL_UNIQKEY in message.properties else 0)
        due_ms = 0 if rolls else exact_ms(message.properties, record.store_timestamp_ms, slot_ms, precision_ms)
        reference = (record.commit_log_offset, record.store_size, topic_hash(message.topic), due_ms)
        entry = TimerEntry(NO_ENTRY, magic, write_ms, slot_ms, *reference)
        slot = self._slot if self._slot is not None and self._slot.slot_ms == slot_ms else None
        is_new = slot is None and self.files.is_empty(slot_ms)
        position = self.files.add(entry)
        if self.files.topics is not None:
            self.files.topics.name(message.topic)
        if is_new:
            self.files.expect(slot_ms)
        if slot is not None:
            slot.add(position, entry)
            if takes_back(entry):
                self._take_back(slot, message)

    def _is_of_past_slot(self, message: TimerMessage, write_ms: int) -> bool:
        """Returns True if a message must wait in a slot whose time is over, since a later message may recall it.

        This holds for messages stored before this start, whose slot was not delivered.
        """
        oldest_ms = max(self._read_ms, write_ms - SLOTS // 2 * self._settings.precision_ms)
        return message.record.queue_offset < self._known_end and self._floor(message.out_ms) >= oldest_ms

    def _was_delivered(self, message: TimerMessage) -> bool:
        earlier = self._earlier
        if message.record.queue_offset >= earlier.queue_offset:
            return False
        stored_ms = self._floor(message.record.store_timestamp_ms)
        slot_ms, rolls = rolled_slot(message.out_ms, stored_ms, self._settings)
        margin_ms = MARGIN_SLOTS * self._settings.precision_ms if rolls else 0
        return slot_ms < earlier.read_ms - margin_ms

    # --- Out of the wheel

    def _deliver(self, now_ms: int) -> bool:
        if self._linking is not None:
            self._link()
            return True
        slot = self._slot
        if slot is None:
            if not self.files.slots or self.files.slots[0] > now_ms:
                return False
            slot_ms = self.files.slots[0]
            self._slot, self._linking = OpenSlot(slot_ms, self._settings.precision_ms), self.files.last(slot_ms)
            heapq.heappop(self.files.slots)  # after the read, which may fail
            self._read_ms, self._opened_at = slot_ms, self._store.end
            return True
        if self.delivery.deliver(slot, self.files.log, now_ms):
            return True
        if slot.next_ms is None and now_ms >= slot.end_ms:
            self.files.delivered(slot.slot_ms, slot.by_topic)
            self._slot, self._read_ms = None, slot.end_ms
            self.removals += self.files.log.retire_before(self._store.start)
            return True
        return False

    def _link(self) -> None:
        slot, following, left_bytes = self._slot, self._linking, STEP_BYTES
        assert slot is not None
        assert following is not None
        for position, entry in itertools.islice(self.files.chain(slot.slot_ms, following), LINKED_AT_ONCE):
            if takes_back(entry):
                message = self.delivery.message(entry)
                if message is not None:
                    self._take_back(slot, message)
                left_bytes -= max(entry.size, MESSAGE_BYTES)
            slot.link(position, entry)
            following = self._linking = entry.previous
            if left_bytes <= 0:
                break
        if following < self.files.log.start:
            slot.sort()
            self._linking = None

    def _take_back(self, slot: OpenSlot, message: TimerMessage) -> None:
        unique_id = message.properties.get(TIMER_DEL_UNIQKEY, "").removeprefix(f"{message.topic}+")
        slot.take_back(message.topic, unique_id)

    # --- Times

    def _floor(self, time_ms: int) -> int:
        return time_ms // self._settings.precision_ms * self._settings.precision_ms

    def _wait_ms(self, now_ms: int) -> int:
        if self._slot is not None:
            next_ms = self._slot.next_ms
            return max(0, (self._slot.end_ms if next_ms is None else next_ms) - now_ms)
        return max(0, self.files.slots[0] - now_ms) if self.files.slots else FAR_MS
