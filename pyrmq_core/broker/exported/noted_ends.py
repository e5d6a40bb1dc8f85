"""`note_ends`: has delays, timers and transactions report what they do to the broker's figures."""

from __future__ import annotations

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.timers.timer_copies import TimerMessage
from pyrmq_core.broker.transactions.half_messages import HalfMessage


def note_ends(broker: Broker) -> None:
    """Sets the callbacks; those of the page of metrics only where the broker has one."""
    figures, measures = broker.figures, broker.measures

    def timer_taken(message: TimerMessage) -> None:
        figures.store.timers_in += 1
        if measures is not None:
            measures.note_timer_in(message.topic, message.out_ms - message.record.born_timestamp_ms)

    def timer_delivered(topic: str, size_bytes: int) -> None:
        figures.note_commit(topic, size_bytes)
        figures.store.timers_out += 1
        if measures is not None:
            measures.note_timer_out(topic)

    def transaction_ended(half: HalfMessage, now_ms: int, committed: bool) -> None:
        if measures is not None:
            measures.note_end(half.real_topic, half.record.born_timestamp_ms, now_ms, committed=committed)

    broker.delays.on_delivered = figures.note_delivery
    broker.transactions.on_committed = figures.note_commit
    broker.transactions.on_ended = transaction_ended
    broker.timers.messages.on_taken = timer_taken
    broker.timers.messages.delivery.on_delivered = timer_delivered
