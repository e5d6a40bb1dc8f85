"""`TimerDelivery`: reads the messages of timer entries, and stores their copies in the messages' real topics.

Copies of due messages are stored in groups of about `STEP_BYTES`. If the disk fills up in the middle of a group, the
entries without a stored copy stay in the slot. So no message is lost or delivered twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.servers.broker.store.appending import Append, DoesNotFit
from pyrmq_core.servers.broker.store.disk.paths import UnsafePath
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.timers.open_slot import OpenSlot
from pyrmq_core.servers.broker.timers.timer_copies import (
    DeliveredCopies,
    NoTimer,
    TimerMessage,
    copy_of,
    key_of_copy,
    read_message,
)
from pyrmq_core.servers.broker.timers.timer_log import ROLL, DamagedTimers, TimerEntry, TimerLog
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_QUEUE, TOPIC_BYTES

# The bytes of messages that one step reads or delivers. Other tasks run between two steps.
STEP_BYTES: Final = 256 << 10
# A smaller message counts as this many bytes in a step, since most of its work does not depend on its size.
MESSAGE_BYTES: Final = 5 << 10


class DueCopy(NamedTuple):
    """The copy of a due timer message to store (`append`), and the message's real topic."""

    topic: str
    append: Append


class TimerDelivery:
    """The delivery of timer messages, each once.

    `warn` is called with a line about lost messages, `on_delivered` with the topic and the bytes of each delivered
    message. `copies` are the copies that an earlier run delivered.
    """

    def __init__(
        self, store: MessageStore, warn: Callable[[str], None], on_delivered: Callable[[str, int], None]
    ) -> None:
        self.warn = warn
        self._on_delivered = on_delivered
        self.copies = DeliveredCopies()
        self._store = store
        self._unreadable = 0  # unreadable messages that are not logged yet
        self._first_unreadable = 0  # the commit-log offset of the first of them

    def find_copies(self, log_end: int, now_ms: int) -> None:
        """Searches the commit log from `log_end` on for copies of messages that were due by `now_ms`."""
        start = max(log_end, self._store.start)
        self.copies = DeliveredCopies()
        if not self._store.reader.bounds(TIMER_QUEUE)[1]:  # no timer message was ever stored
            return
        records = (record for record in self._store.records(start) if isinstance(record, RawRecord))
        self.copies.find(records, start, self._store.reader.bounds(TIMER_QUEUE)[1], now_ms)

    def message(self, entry: TimerEntry) -> TimerMessage | None:
        """Returns the timer message of an entry in the timer log, or None if its record is removed or damaged.

        Raises `DamagedTimers` if the record is not a timer message.
        """
        record = self._store.reader.record_of(entry.physical_offset, entry.size)
        if record is None:
            self.note_unreadable(entry.physical_offset)
            return None
        try:
            message = read_message(record)
        except NoTimer as error:
            raise DamagedTimers(f"the timer log names a record at {entry.physical_offset}: {error}") from error
        if message.record.topic != TOPIC_BYTES:
            raise DamagedTimers(f"the timer log names a record at {entry.physical_offset} of another topic")
        return message

    def deliver(self, slot: OpenSlot, timer_log: TimerLog, now_ms: int) -> bool:
        """Delivers the due messages of a slot, about `STEP_BYTES` of them. Returns True if more may be due.

        Raises `StoreError` if the disk fails. The message that failed is then the next to be delivered.
        """
        left_bytes, failure = STEP_BYTES, None
        entries: list[tuple[int, int]] = []
        copies: list[DueCopy] = []
        while left_bytes > 0 and (due := slot.take(now_ms)) is not None:
            entries.append(due)
            try:
                entry = timer_log.entry(due[1])
                copy = self._copy(slot, entry, now_ms)
            except StoreError as error:
                failure = error
                break
            left_bytes -= max(entry.size, MESSAGE_BYTES)
            if copy is None:
                entries.pop()
            else:
                copies.append(copy)
        stored, refused = self._store_copies(copies, now_ms)
        slot.give_back(entries[stored:])
        if failure := refused or failure:
            raise failure
        return left_bytes <= 0

    def store_copy(self, message: TimerMessage, enqueue_ms: int, now_ms: int) -> None:
        if not self._was_delivered(message, rolls=False):
            copy = DueCopy(message.topic, copy_of(message, enqueue_ms, now_ms, rolls=False))
            _, failure = self._store_copies([copy], now_ms)
            if failure:
                raise failure

    def _copy(self, slot: OpenSlot, entry: TimerEntry, now_ms: int) -> DueCopy | None:
        message, rolls = self.message(entry), bool(entry.magic & ROLL)
        if message is None or (not rolls and slot.is_taken_back(message.topic, message.unique_id)):
            return None
        if self._was_delivered(message, rolls=rolls):
            return None
        return DueCopy(message.topic, copy_of(message, entry.enqueue_ms, now_ms, rolls=rolls))

    def _was_delivered(self, message: TimerMessage, *, rolls: bool) -> bool:
        return self.copies.start is not None and self.copies.take(key_of_copy(message, rolls=rolls))

    def _store_copies(self, copies: Sequence[DueCopy], now_ms: int) -> tuple[int, StoreError | None]:
        results = self._store.put_all([copy.append for copy in copies], now_ms)
        for number, (copy, result) in enumerate(zip(copies, results, strict=True)):
            if not isinstance(result, StoreError):
                self._on_delivered(copy.topic, result.end - result.positions[0])
            elif isinstance(result, (UnsafePath, DoesNotFit)):
                self.warn(f"a timer message for {copy.topic[:255]!r} is not delivered: {result}")
            else:
                return number, result
        return len(copies), None

    def note_unreadable(self, physical_offset: int) -> None:
        self._first_unreadable = self._first_unreadable if self._unreadable else physical_offset
        self._unreadable += 1

    def report(self) -> None:
        """Warns in one line of all messages whose records could not be read."""
        if self._unreadable:
            self.warn(
                f"{self._unreadable} timer messages are not delivered, whose records are damaged or removed from the "
                f"commit log; the first was at {self._first_unreadable}"
            )
        self._unreadable = 0
