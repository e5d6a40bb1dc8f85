"""The broker's metrics, with the names and labels of RocketMQ 5.x.

Source: broker/metrics/BrokerMetricsManager.java, ConsumerLagCalculator.java, store/metrics/
DefaultStoreMetricsManager.java, 5.4.0. The module `measures` has the counters that only these metrics show.
docs/monitoring.md names the metrics that are left out. No metric has the label `message_type`, since this broker does
not count by message type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final

from pyrmq_core.protocol.framing.versions import version_name
from pyrmq_core.protocol.messages.names import RETRY_PREFIX, SYSTEM_GROUPS
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.broker import Deliveries, Tables
from pyrmq_core.servers.broker.clients.client_table import ClientInfo, ClientTable
from pyrmq_core.servers.broker.counts import Counts
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.statistics.measures import LOCAL_DISK, truth
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_QUEUE
from pyrmq_core.servers.broker.timers.timer_wheel import TimerWheel
from pyrmq_core.servers.exporter.families import Family, Kind, Sample

COMMON_LABELS: Final = ("cluster", "node_type", "node_id")
BY_GROUP: Final = ("topic", "consumer_group", "is_retry", "is_system")
STORAGE: Final = ("storage_type", "storage_medium")
PROGRAM: Final = ("language", "protocol_type", "version")
# The bounds in seconds of ranges of the time until a timer message is due (TimerMetrics.timerDist).
TIMER_BOUNDS: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)


def common_labels(config: BrokerConfig) -> dict[str, str]:
    return dict(zip(COMMON_LABELS, (config.broker_cluster_name, "broker", config.broker_name), strict=True))


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """The metrics of a broker, which are computed from its parts at each scrape."""

    settings: LiveSettings
    store: MessageStore
    tables: Tables
    clients: ClientTable
    deliveries: Deliveries
    counts: Counts
    long_work: BoundedWork

    def families(self) -> Iterator[Family]:
        counted = iter(()) if self.counts.measures is None else self.counts.measures.families()
        return chain(
            self._throughput(),
            self._tables(),
            self._connections(),
            self._consumers(),
            self._storage(),
            self._timers(),
            self._transactions(),
            self._pops(),
            counted,
        )

    def _throughput(self) -> Iterator[Family]:
        puts, gets = self.counts.figures.puts_by_topic(), self.counts.figures.gets_by_topic_and_group()
        for name, counter, text in (
            ("rocketmq_messages_in_total", "messages", "Messages that were stored."),
            ("rocketmq_throughput_in_total", "size_bytes", "Bytes of messages that were stored."),
        ):
            samples = [
                Sample((topic, truth(tally.is_system)), getattr(tally, counter)) for topic, tally in puts.items()
            ]
            yield Family(name, Kind.COUNTER, text, ("topic", "is_system"), samples)
        for name, counter, text in (
            ("rocketmq_messages_out_total", "messages", "Messages that groups got."),
            ("rocketmq_throughput_out_total", "size_bytes", "Bytes of messages that groups got."),
        ):
            samples = [
                Sample((topic, group, truth(tally.is_system)), getattr(tally, counter))
                for (topic, group), tally in gets.items()
            ]
            yield Family(name, Kind.COUNTER, text, ("topic", "consumer_group", "is_system"), samples)

    def _tables(self) -> Iterator[Family]:
        for name, text, value in (
            (
                "rocketmq_broker_permission",
                "brokerPermission: 2 write, 4 read.",
                self.settings.config.broker_permission,
            ),
            ("rocketmq_topic_number", "Topics of the broker.", sum(1 for _ in self.tables.topics)),
            ("rocketmq_consumer_group_number", "Consumer groups of the broker.", len(self.tables.groups)),
        ):
            yield Family(name, Kind.GAUGE, text, (), [Sample((), value)])
        work = Sample(("admin",), self.long_work.waiting)
        yield Family(
            "rocketmq_processor_watermark", Kind.GAUGE, "Requests that wait for their turn.", ("processor",), [work]
        )

    def _connections(self) -> Iterator[Family]:
        producers, consumers = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for members in list(self.clients.producers.values()):
            producers.update(_program(info) for info in list(members.values()))
        for group, connected in list(self.clients.consumers.items()):
            mode = "pull" if connected.consume_type == "CONSUME_ACTIVELY" else "push"
            own = (group, mode, truth(group in SYSTEM_GROUPS))
            consumers.update((*own, *_program(info)) for info in list(connected.members.values()))
        for name, text, labels, counted in (
            ("rocketmq_producer_connections", "Producers that are connected.", PROGRAM, producers),
            (
                "rocketmq_consumer_connections",
                "Members of consumer groups that are connected.",
                ("consumer_group", "consume_mode", "is_system", *PROGRAM),
                consumers,
            ),
        ):
            yield Family(name, Kind.GAUGE, text, labels, [Sample(key, value) for key, value in counted.items()])

    def _consumers(self) -> Iterator[Family]:
        rows: dict[tuple[str, ...], tuple[int, int, int, float, float]] = {}

        def walked() -> Iterator[Sample]:
            for group in self.tables.offsets.groups():
                for topic in self.tables.offsets.topics_of(group):
                    if self.tables.topics.get(topic) is None:
                        continue
                    is_retry, is_system = topic.startswith(RETRY_PREFIX), self.tables.topics.is_system(topic)
                    labels = (topic, group, truth(is_retry), truth(is_system))
                    rows[labels] = self._waiting(group, topic)
                    yield Sample(labels, rows[labels][0])

        yield Family("rocketmq_consumer_lag_messages", Kind.GAUGE, "Messages not acknowledged yet.", BY_GROUP, walked())
        for place, name, text in (
            (1, "rocketmq_consumer_inflight_messages", "Messages that were pulled and are not acknowledged."),
            (2, "rocketmq_consumer_ready_messages", "Messages that were not pulled yet."),
            (
                3,
                "rocketmq_consumer_lag_latency_milliseconds",
                "Age of the oldest message not acknowledged.",
            ),
            (
                4,
                "rocketmq_consumer_queueing_latency_milliseconds",
                "Age of the oldest message not pulled.",
            ),
        ):
            yield Family(name, Kind.GAUGE, text, BY_GROUP, (Sample(labels, row[place]) for labels, row in rows.items()))

    def _waiting(self, group: str, topic: str) -> tuple[int, int, int, float, float]:
        """Returns a group's lag in a topic: messages not consumed, how many of them were pulled, and how many not.

        The last two values are the ages in ms of the oldest unconsumed message, and of the oldest one not yet pulled.
        """
        lag = under_way = 0
        now_ms = clock.now_ms()
        oldest = oldest_ready = now_ms
        for queue_id, committed in self.tables.offsets.of_group(group, topic).items():
            start, end = self.store.reader.bounds((topic, queue_id))
            begin = max(start, committed)
            if begin >= end:
                continue
            lag += end - begin
            pulled = min(end, max(begin, self.tables.offsets.pulled(group, topic, queue_id) or 0))
            under_way += pulled - begin
            oldest = min(oldest, self.store.reader.store_time((topic, queue_id), begin) or now_ms)
            if pulled < end:
                oldest_ready = min(oldest_ready, self.store.reader.store_time((topic, queue_id), pulled) or now_ms)
        return lag, under_way, lag - under_way, now_ms - oldest, now_ms - oldest_ready

    def _storage(self) -> Iterator[Family]:
        log_bytes, unflushed = self.store.log_bytes, max(0, self.store.readable_end - self.store.flushed)
        earliest, store = self.store.reader.earliest_ms(), self.store
        values: Iterable[tuple[str, str, float]] = (
            (
                "rocketmq_storage_dispatch_behind_bytes",
                "Bytes that no queue names yet.",
                store.end - store.readable_end if self.settings.config.is_slave else 0,
            ),
            (
                "rocketmq_storage_message_reserve_time_milliseconds",
                "Age of the oldest message.",
                max(0, clock.now_ms() - earliest) if earliest > 0 else 0,
            ),
            ("rocketmq_storage_size_bytes", "Bytes of the commit log.", log_bytes),
            ("rocketmq_storage_flush_behind_bytes", "Bytes that are not synced yet.", unflushed),
        )
        for name, text, value in values:
            yield Family(name, Kind.GAUGE, text, STORAGE, [Sample(LOCAL_DISK, value)])

    def _timers(self) -> Iterator[Family]:
        timers, now_ms = self.deliveries.timers.messages, clock.now_ms()
        if not self.deliveries.timers.enabled:
            return
        unread = timers.unread
        stored = self.store.reader.store_time(TIMER_QUEUE, timers.queue_offset) if unread else 0
        for name, text, value in (
            ("rocketmq_timer_enqueue_lag", "Timer messages that are not in the wheel yet.", unread),
            (
                "rocketmq_timer_enqueue_latency_milliseconds",
                "Age of the oldest of these.",
                max(0, now_ms - stored) if stored else 0,
            ),
            ("rocketmq_timer_dequeue_lag", "Timer messages that wait in the wheel.", timers.files.waiting),
            (
                "rocketmq_timer_dequeue_latency_milliseconds",
                "Time by which the delivery is late.",
                timers.late_ms(now_ms),
            ),
        ):
            yield Family(name, Kind.GAUGE, text, STORAGE, [Sample(LOCAL_DISK, value)])
        yield Family(
            "rocketmq_timer_message_snapshot",
            Kind.GAUGE,
            "Timer messages of the next day by the time until their delivery.",
            (*STORAGE, "timer_bound_s"),
            snapshot(timers.files.wheel, now_ms),
        )
        if timers.files.topics is not None:
            numbers = timers.files.topics.by_topic(config.topic for config in self.tables.topics)
            yield Family(
                "rocketmq_timing_messages",
                Kind.GAUGE,
                "Timer messages that wait in the wheel, by the topic they are for.",
                (*STORAGE, "topic"),
                [Sample((*LOCAL_DISK, topic), number) for topic, number in numbers.items()],
            )

    def _transactions(self) -> Iterator[Family]:
        waiting = [Sample((topic,), number) for topic, number in self.deliveries.transactions.waiting_by_topic.items()]
        yield Family("rocketmq_half_messages", Kind.GAUGE, "Half messages without an end.", ("topic",), waiting)

    def _pops(self) -> Iterator[Family]:
        """Yields for each queue of the pops' revive log the number of unfinished entries, and its delay in ms."""
        reviver, now_ms = self.deliveries.reviver, clock.now_ms()
        late = {at: max(0, now_ms - (queue.next_ms or now_ms)) for at, queue in reviver.queues.items()}
        for name, text, values in (
            ("rocketmq_pop_revive_lag_milliseconds", "Entries that are not over.", map(reviver.left, late)),
            ("rocketmq_pop_revive_latency_milliseconds", "Time by which the revival is late.", late.values()),
        ):
            samples = [Sample((str(at),), value) for at, value in zip(late, values, strict=True)]
            yield Family(name, Kind.GAUGE, text, ("queue_id",), samples)


def _program(info: ClientInfo) -> tuple[str, ...]:
    version = version_name(info.version).lower().replace(".", "_").replace("-", "_")
    return info.language.lower(), "remoting", f"v{version}"


def snapshot(wheel: TimerWheel, now_ms: int) -> Iterator[Sample]:
    """Yields for each range of TIMER_BOUNDS, counted from `now_ms`, how many of the wheel's messages are due in it."""
    for before, bound in pairwise((0, *TIMER_BOUNDS)):
        number = wheel.number(now_ms + before * 1000, now_ms + bound * 1000)
        yield Sample((*LOCAL_DISK, str(bound)), number)
