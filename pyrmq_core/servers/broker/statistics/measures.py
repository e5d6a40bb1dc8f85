"""`Measures`: the counters of a broker that only its Prometheus page shows. A broker without that page has none.

Source: broker/metrics/BrokerMetricsManager.java, store/metrics/DefaultStoreMetricsManager.java, broker/processor/
EndTransactionProcessor.java, AdminBrokerProcessor.java, broker/metrics/PopMetricsManager.java (5.4.0). As in RocketMQ,
the metric `rocketmq_finish_message_latency_milliseconds` has whole seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, is_retry_topic
from pyrmq_core.servers.exporter.families import Family, Kind
from pyrmq_core.servers.exporter.rpc_latency import RpcLatency
from pyrmq_core.servers.exporter.series import Counts, Histogram, Labels

SIZE_BOUNDS: Final = (1024.0, 4096.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0)
CREATION_BOUNDS: Final = (10.0, 100.0, 1_000.0, 3_000.0, 5_000.0)
DELAY_BOUNDS: Final = (60.0, 600.0, 3_600.0, 43_200.0, 86_400.0, 259_200.0)
FINISH_BOUNDS: Final = (5.0, 60.0, 600.0, 3_600.0, 43_200.0, 86_400.0)
BY_TOPIC: Final = ("topic",)
IN_STORE: Final = ("storage_type", "storage_medium", "topic")
LOCAL_DISK: Final = ("local", "disk")
SECOND_MS: Final = 1_000
BY_GROUP: Final = ("consumer_group", "topic")
# The status label of all counts (PutMessageStatus.java), since only stored messages are counted.
PUT: Final = "PUT_OK"


class Measures:
    """The counters of one broker since its start, as metrics. `is_system` returns whether a topic is RocketMQ's own."""

    def __init__(self, is_system: Callable[[str], bool]) -> None:
        self._is_system = is_system
        self.rpc = RpcLatency(self._request_ended)
        self._sizes = Histogram(SIZE_BOUNDS)
        self._topics_made = Histogram(CREATION_BOUNDS)
        self._groups_made = Histogram(CREATION_BOUNDS)
        self._finished = Histogram(FINISH_BOUNDS)
        self._delays = Histogram(DELAY_BOUNDS)
        self._dead, self._committed, self._rolled_back = Counts(), Counts(), Counts()
        self._enqueued, self._dequeued = Counts(), Counts()
        self._entries_in, self._entries_out, self._revived = Counts(), Counts(), Counts()

    def note_put(self, topic: str, messages: int, size_bytes: int) -> None:
        # As in RocketMQ, a batch is one observation, of the mean size of its messages.
        if not is_retry_topic(topic) and not topic.startswith(DLQ_PREFIX):
            self._sizes.observe((topic, truth(self._is_system(topic))), size_bytes // messages)

    def note_dead(self, topic: str, group: str) -> None:
        self._dead.add((topic, group, truth(self._is_system(topic))))

    def note_end(self, topic: str, born_ms: int, now_ms: int, *, committed: bool) -> None:
        if committed:
            self._committed.add((topic,))
            self._finished.observe((topic,), max(0, now_ms - born_ms) // SECOND_MS)
        else:
            self._rolled_back.add((topic,))

    def note_timer_in(self, topic: str, delay_ms: int) -> None:
        """Counts a timer message, and its delay in whole seconds. Like RocketMQ, leaves out delays of -1 s or less."""
        self._enqueued.add((*LOCAL_DISK, topic))
        if delay_ms > -SECOND_MS:
            self._delays.observe((*LOCAL_DISK, topic), max(0, delay_ms) // SECOND_MS)

    def note_timer_out(self, topic: str) -> None:
        self._dequeued.add((*LOCAL_DISK, topic))

    def note_revive_entry_in(self, labels: Labels) -> None:
        self._entries_in.add((*labels, PUT))

    def note_revive_entry_out(self, labels: Labels, queue_id: int) -> None:
        self._entries_out.add((*labels, str(queue_id)))

    def note_revived(self, group: str, topic: str) -> None:
        self._revived.add((group, topic, PUT))

    def _request_ended(self, request: Command, code: int, took_ms: float) -> None:
        status = "success" if code == ResponseCode.SUCCESS else "failure"
        if request.code == RequestCode.UPDATE_AND_CREATE_TOPIC:
            self._topics_made.observe((status, truth(self._is_system(request.ext.get("topic", "")))), took_ms)
        elif request.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            self._groups_made.observe((status,), took_ms)

    def families(self) -> Iterator[Family]:
        yield self.rpc.family()
        status = ("invocation_status",)
        histograms: tuple[tuple[str, str, tuple[str, ...], Histogram], ...] = (
            ("rocketmq_message_size", "Sizes of messages that were stored.", (*BY_TOPIC, "is_system"), self._sizes),
            (
                "rocketmq_topic_create_execution_time_milliseconds",
                "Times of topics made.",
                (*status, "is_system"),
                self._topics_made,
            ),
            (
                "rocketmq_consumer_group_create_execution_time_milliseconds",
                "Times of groups made.",
                status,
                self._groups_made,
            ),
            ("rocketmq_finish_message_latency_milliseconds", "Seconds to a commit.", BY_TOPIC, self._finished),
            ("rocketmq_delay_message_latency_seconds", "Delays of timer messages.", IN_STORE, self._delays),
        )
        for name, text, labels, histogram in histograms:
            yield Family(name, Kind.HISTOGRAM, text, labels, histogram.samples(), histogram.bounds)
        counted: tuple[tuple[str, str, tuple[str, ...], Counts], ...] = (
            (
                "rocketmq_send_to_dlq_messages_total",
                "Messages moved to dead letters.",
                ("topic", "consumer_group", "is_system"),
                self._dead,
            ),
            ("rocketmq_commit_messages_total", "Transactions committed.", BY_TOPIC, self._committed),
            ("rocketmq_rollback_messages_total", "Transactions rolled back.", BY_TOPIC, self._rolled_back),
            ("rocketmq_timer_enqueue_total", "Timer messages taken into the wheel.", IN_STORE, self._enqueued),
            ("rocketmq_timer_dequeue_total", "Timer messages delivered.", IN_STORE, self._dequeued),
            (
                "rocketmq_pop_revive_in_message_total",
                "Checkpoints and acknowledgements written to the revive log.",
                (*BY_GROUP, "revive_message_type", "put_status"),
                self._entries_in,
            ),
            (
                "rocketmq_pop_revive_out_message_total",
                "Checkpoints and acknowledgements read from the revive log.",
                (*BY_GROUP, "revive_message_type", "queue_id"),
                self._entries_out,
            ),
            (
                "rocketmq_pop_revive_retry_messages_total",
                "Popped messages that became visible again.",
                (*BY_GROUP, "put_status"),
                self._revived,
            ),
        )
        for name, text, labels, counts in counted:
            yield Family(name, Kind.COUNTER, text, labels, counts.samples())


def truth(value: bool) -> str:
    return "true" if value else "false"
