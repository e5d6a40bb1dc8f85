"""The place at which a start goes on: in rmq_sys_wheel_timer, and in the commit log."""

from __future__ import annotations

from typing import Final

from pyrmq_core.broker.store.message_store import MessageStore
from pyrmq_core.broker.timers.timer_checkpoint import TimerCheckpoint
from pyrmq_core.broker.timers.timer_log import TimerEntry
from pyrmq_core.broker.timers.timer_rules import TIMER_QUEUE, TOPIC_BYTES

# Some 20 s of reading.
MAX_LOOKED_AT_BYTES: Final = 4 << 30


def next_offset(store: MessageStore, saved: TimerCheckpoint, last: TimerEntry | None) -> int:
    """Returns the queue offset behind the last message in the timer log; the checkpoint's if that is later."""
    record = None if last is None else store.record_of(last.physical_offset, last.size)
    if record is None or record.topic != TOPIC_BYTES:
        return saved.queue_offset
    after = record.queue_offset + 1
    # RocketMQ writes its checkpoint before the log is synced: the log decides.
    return max(saved.queue_offset, after) if saved.log_end is not None else after


def processed_end(store: MessageStore, saved: TimerCheckpoint) -> int | None:
    """Returns an offset behind which copies lie that are newer than RocketMQ's checkpoint; None if that is too much.

    Copies of slots from its read time on were stored after that time, and after the last message stored before it, of
    timers or of any other topic. The queue offset may be of a later moment. A message from the queue offset on is read
    anew, and its copy may be older than the read time: a master that began without files had both.
    """
    start, end = store.bounds(TIMER_QUEUE)
    if start >= end:
        return None
    offset = min(saved.queue_offset - 1, store.search(TIMER_QUEUE, saved.read_ms, upper=True))
    offset = min(max(offset, start), end - 1)
    place = max(store.entry(TIMER_QUEUE, offset).physical_offset, store.place_before(saved.read_ms))
    places = [place]
    if saved.queue_offset < end:
        places.insert(0, min(place, store.entry(TIMER_QUEUE, max(saved.queue_offset, start)).physical_offset))
    return next((one for one in places if store.end - one <= MAX_LOOKED_AT_BYTES), None)
