"""`TimerDelivery`: reads the messages that timer entries name, and stores the copies that are delivered."""

from __future__ import annotations

from collections.abc import Callable

from pyrmq_core.broker.store.appending import DoesNotFit
from pyrmq_core.broker.store.message_store import MessageStore
from pyrmq_core.broker.store.paths import UnsafePath
from pyrmq_core.broker.timers.timer_copies import (
    DeliveredCopies,
    NoTimer,
    TimerMessage,
    copy_of,
    key_of_copy,
    read_message,
)
from pyrmq_core.broker.timers.timer_log import DamagedTimers, TimerEntry
from pyrmq_core.broker.timers.timer_rules import TIMER_QUEUE, TOPIC_BYTES
from pyrmq_core.protocol.messages.record import RawRecord


class TimerDelivery:
    """The way of messages out of the timers, each once.

    `warn` is called with a line for messages that are lost, and the reason, `on_delivered` with topic and bytes of each
    that is delivered. `copies` has those that an earlier run delivered.
    """

    def __init__(self, store: MessageStore) -> None:
        self.warn: Callable[[str], None] = lambda line: None
        self.on_delivered: Callable[[str, int], None] = lambda topic, size_bytes: None
        self.copies = DeliveredCopies()
        self._store = store
        self._unreadable = 0  # messages not reported yet
        self._first_unreadable = 0  # the first one's place in the commit log

    def find_copies(self, log_end: int, now_ms: int) -> None:
        """Finds what was delivered by `now_ms` and lies behind an offset of the commit log."""
        start = max(log_end, self._store.start)
        self.copies = DeliveredCopies()
        if not self._store.bounds(TIMER_QUEUE)[1]:  # no timer message was ever stored
            return
        records = (found for found in self._store.records(start) if isinstance(found, RawRecord))
        self.copies.find(records, start, self._store.bounds(TIMER_QUEUE)[1], now_ms)

    def message(self, entry: TimerEntry) -> TimerMessage | None:
        """Returns an entry's message; None if its record is gone. Raises `DamagedTimers` for an entry of another."""
        record = self._store.record_of(entry.physical_offset, entry.size)
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

    def store_copy(self, message: TimerMessage, enqueue_ms: int, now_ms: int, *, rolls: bool) -> None:
        """Stores the copy, unless an earlier run did; with `rolls` the one that waits on."""
        if self.copies.start is not None and self.copies.take(key_of_copy(message, rolls=rolls)):
            return
        try:
            stored = self._store.put(copy_of(message, enqueue_ms, now_ms, rolls=rolls), now_ms)
            self.on_delivered(message.topic, stored.end - stored.positions[0])
        except (UnsafePath, DoesNotFit) as error:
            self.warn(f"a timer message for {message.topic[:255]!r} is not delivered: {error}")

    def note_unreadable(self, physical_offset: int) -> None:
        """Notes a message whose record cannot be read, for the next `report`."""
        self._first_unreadable = self._first_unreadable if self._unreadable else physical_offset
        self._unreadable += 1

    def report(self) -> None:
        """Warns of all messages whose records could not be read, in one line: removal takes many at once."""
        if self._unreadable:
            self.warn(
                f"{self._unreadable} timer messages are not delivered, whose records are damaged or removed from the "
                f"commit log; the first was at {self._first_unreadable}"
            )
        self._unreadable = 0
