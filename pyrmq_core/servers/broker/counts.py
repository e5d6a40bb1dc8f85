"""`Counts`: a broker's counters of events, for the requests for statistics and for the page of Prometheus metrics."""

from __future__ import annotations

from dataclasses import dataclass

from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.statistics.measures import Measures
from pyrmq_core.servers.broker.store.appending import Append, AppendResult
from pyrmq_core.servers.broker.timers.timer_copies import TimerMessage
from pyrmq_core.servers.broker.transactions.half_messages import HalfMessage
from pyrmq_core.servers.exporter.series import Labels


@dataclass(frozen=True, slots=True)
class Counts:
    """A broker's counters: `figures` for the requests for statistics, `measures` for Prometheus alone.

    `measures` is None unless metricsExporterType is PROM.
    """

    figures: BrokerFigures
    measures: Measures | None

    def note_put(self, append: Append, stored: AppendResult, took_ms: int) -> None:
        messages, size_bytes = append.inner_num or len(stored.positions), stored.end - stored.positions[0]
        self.figures.note_put(append.topic, messages, size_bytes, took_ms)
        self.figures.note_put_latency(append.topic, append.queue_id, took_ms)
        if self.measures is not None:
            self.measures.note_put(append.topic, messages, size_bytes)

    def note_dead(self, topic: str, group: str) -> None:
        if self.measures is not None:
            self.measures.note_dead(topic, group)

    def revive_entry_written(self, labels: Labels) -> None:
        if self.measures is not None:
            self.measures.note_revive_entry_in(labels)

    def revive_entry_read(self, labels: Labels, queue_id: int) -> None:
        if self.measures is not None:
            self.measures.note_revive_entry_out(labels, queue_id)

    def revived(self, group: str, topic: str) -> None:
        if self.measures is not None:
            self.measures.note_revived(group, topic)

    def timer_taken(self, message: TimerMessage) -> None:
        self.figures.store.timers_in += 1
        if self.measures is not None:
            self.measures.note_timer_in(message.topic, message.out_ms - message.record.born_timestamp_ms)

    def timer_delivered(self, topic: str, size_bytes: int) -> None:
        self.figures.note_commit(topic, size_bytes)
        self.figures.store.timers_out += 1
        if self.measures is not None:
            self.measures.note_timer_out(topic)

    def transaction_ended(self, half: HalfMessage, now_ms: int, committed: bool) -> None:
        if self.measures is not None:
            self.measures.note_end(half.real_topic, half.record.born_timestamp_ms, now_ms, committed=committed)
