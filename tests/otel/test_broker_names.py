"""The broker's metrics beside those that a RocketMQ 5.4.0 broker exported after the same traffic."""

from __future__ import annotations

from pathlib import Path

import trio

from pyrmq_core.servers.broker.exported.broker_metrics import TIMER_BOUNDS, snapshot
from pyrmq_core.servers.broker.statistics import measures
from pyrmq_core.servers.broker.timers.timer_wheel import SLOTS, Slot, TimerWheel
from pyrmq_core.servers.exporter import rpc_latency
from pyrmq_core.servers.exporter.families import Buckets, Sample
from pyrmq_core.servers.exporter.series import OTHER, Counts, Histogram
from pyrmq_core.testing import EmbeddedCluster
from tests.otel.pages import free_port, parsed, text_of
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.timer_stores import timed_store
from tests.support.metric_jobs import bounds_on, exercise, names_on

ROOT = Path(__file__).parent.parent.parent
# Each metric of the real one with its labels; recorded by tests/interop/test_metric_names.py.
RECORDED = ROOT / "tests" / "golden" / "broker_metrics_5.4.0.txt"
NOT_HERE = {"message_type"}  # of a label


def recorded() -> dict[str, set[str]]:
    return {line.split()[0]: set(line.split()[1:]) for line in RECORDED.read_text().splitlines()}


async def test_each_of_rocketmqs_metrics_is_served_or_said_not_to_be() -> None:
    port = free_port()
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    async with EmbeddedCluster(settings=settings) as cluster:
        await exercise(cluster.nameserver)
        with trio.fail_after(60):
            while True:
                text = await trio.to_thread.run_sync(text_of, port)
                page = parsed(text)
                out = {own["topic"]: value for own, value in page.get("rocketmq_timer_dequeue_total", [])}
                if out.get("prices") == 1:
                    break
                await trio.sleep(0.2)
    ours, theirs = names_on(text), recorded()
    left_out = {name for name in theirs if name.startswith("rocketmq_pop_") and "buffer" in name}  # there is none
    assert left_out
    # The last consumer has gone by now.
    assert theirs.keys() - left_out - ours.keys() == {"rocketmq_consumer_connections", "rocketmq_producer_connections"}
    assert ours.keys() <= theirs.keys() - left_out
    assert {name: labels for name, labels in ours.items() if labels != theirs[name] - NOT_HERE} == {}
    bounds = {name: edges[:-1] for name, edges in bounds_on(text).items()}
    assert bounds == {
        "rocketmq_rpc_latency_milliseconds": rpc_latency.BOUNDS,
        "rocketmq_message_size": measures.SIZE_BOUNDS,
        "rocketmq_topic_create_execution_time_milliseconds": measures.CREATION_BOUNDS,
        "rocketmq_consumer_group_create_execution_time_milliseconds": measures.CREATION_BOUNDS,
        "rocketmq_finish_message_latency_milliseconds": measures.FINISH_BOUNDS,
        "rocketmq_delay_message_latency_seconds": measures.DELAY_BOUNDS,
    }

    def value(metric: str, **labels: str) -> float:
        (figure,) = (number for own, number in page[metric] if labels.items() <= own.items())
        return figure

    assert value("rocketmq_half_messages", topic="orders") == 1
    assert value("rocketmq_commit_messages_total", topic="orders") == 1
    assert value("rocketmq_rollback_messages_total", topic="orders") == 1
    assert value("rocketmq_finish_message_latency_milliseconds_count", topic="orders") == 1
    assert value("rocketmq_send_to_dlq_messages_total", topic="orders", consumer_group="readers") == 1
    assert value("rocketmq_timer_enqueue_total", topic="prices") == 1
    assert value("rocketmq_delay_message_latency_seconds_count", topic="prices") == 1
    assert value("rocketmq_delay_message_latency_seconds_sum", topic="prices") <= 60  # no milliseconds
    assert value("rocketmq_message_size_bucket", topic="orders", le="1024.0") == 0
    assert value("rocketmq_message_size_bucket", topic="orders", le="4096.0") == 3
    creation = {"invocation_status": "success", "is_system": "false"}
    assert value("rocketmq_topic_create_execution_time_milliseconds_count", **creation) == 2
    pulls = {"request_code": "pull_message", "response_code": "success", "is_long_polling": "false"}
    assert value("rocketmq_rpc_latency_milliseconds_count", **pulls) >= 1


def test_delays_are_whole_seconds_from_a_messages_birth() -> None:
    measured = measures.Measures(lambda topic: False)
    for delay_ms in (-1_000, -999, 999, 60_999, 61_000):
        measured.note_timer_in("T", delay_ms)
    families = {family.name: family for family in measured.families()}
    assert [sample.value for sample in families["rocketmq_timer_enqueue_total"].samples] == [5]
    (latency,) = families["rocketmq_delay_message_latency_seconds"].samples
    assert latency == Sample(("local", "disk", "T"), Buckets((3, 4, 4, 4, 4, 4, 4), 121.0))


def test_timers_that_wait_are_counted_by_the_time_until_their_delivery() -> None:
    seconds = (3, 30, 3_500, 3_610, 80_000, 90_000)
    with timed_store() as timed:

        def counted() -> list[object]:
            samples = list(snapshot(timed.timers.files.wheel, timed.now_ms))
            assert [sample.labels[-1] for sample in samples] == [str(bound) for bound in TIMER_BOUNDS]
            return [sample.value for sample in samples]

        assert counted() == [0] * 8, "there is no wheel yet"
        for number, second in enumerate(seconds):
            timed.send(b"%d" % number, {"TIMER_DELAY_SEC": str(second)})
        timed.work()
        assert counted() == [1, 1, 0, 0, 1, 1, 0, 1]
        timed.take_back(b"4", timed.now_ms + 80_000_000)
        timed.run_until(timed.now_ms + 60_000)
        assert counted() == [0, 0, 0, 0, 2, 0, 0, 0]


def test_a_count_of_the_wheel_goes_on_at_its_beginning_and_leaves_other_rounds_out() -> None:
    wheel, first_ms = TimerWheel(MemoryFiles(), 1000), 5 * SLOTS * 1000
    for second, number in ((-2, 3), (-1, 5), (0, 7), (1, 11), (2 - SLOTS, 13)):
        wheel.put(first_ms + second * 1000, Slot(0, 0, number))
    assert wheel.number(first_ms - 2_000, first_ms + 2_000) == 3 + 5 + 7 + 11
    assert wheel.number(first_ms - 1_000, first_ms + 1_000) == 5 + 7
    assert wheel.number(first_ms + 1_000, first_ms + 3_000) == 11
    assert wheel.number(first_ms, first_ms) == 0


def test_series_beyond_the_bound_are_counted_together() -> None:
    most = 2
    histogram, counts = Histogram((1.0, 10.0), max_series=most), Counts(max_series=most)
    for number in range(10_000):
        histogram.observe((f"t{number}", "x"), number)
        counts.add((f"t{number}",))
    samples = list(histogram.samples())
    assert len(samples) == len(list(counts.samples())) == most + 1
    assert samples[-1].labels == (OTHER, OTHER)
    assert samples[-1].value == Buckets((0, 9, 9_998), sum(range(most, 10_000)))
    assert list(counts.samples())[-1] == Sample((OTHER,), 10_000 - most)
