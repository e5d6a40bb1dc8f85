"""Lag and published offsets, without a session: a progress as Spark reports it, and our own brokers."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client.parser import text_string_to_metric_families

from pyrmq_core import MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, PullConsumer
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_spark import LagListener, OffsetPublisher, QueueLag, commit_offsets, lag, worker
from pyrmq_spark.spark_errors import NoProgress, RocketMQSparkError
from pyrmq_spark.stream.lag_listener import QUERIES_KEPT
from pyrmq_spark.stream.stream_offset import StreamOffset

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)


class Progress:
    """The parts of a query and of its progress event that are read."""

    def __init__(self, *sources: dict[str, Any], name: str | None = None) -> None:
        self.json = json.dumps({"name": name, "sources": sources})

    @property
    def progress(self) -> "Progress":
        return self

    @property
    def lastProgress(self) -> "Progress":  # noqa: N802 - Spark's name
        return self


class NotStarted:
    lastProgress = None  # noqa: N815 - Spark's name


def source(end: dict[MessageQueue, int], latest: dict[MessageQueue, int] | None = None) -> dict[str, Any]:
    text = None if latest is None else json.dumps(StreamOffset(latest).to_json())
    return {"endOffset": json.dumps(StreamOffset(end).to_json()), "latestOffset": text}


def test_lag_is_what_lies_between_the_query_and_the_end() -> None:
    lags = lag(Progress(source({A: 5, B: 7}, {A: 9, B: 7})))  # type: ignore[arg-type]
    assert lags == [QueueLag(A, 5, 9), QueueLag(B, 7, 7)]
    assert [queue_lag.behind for queue_lag in lags] == [4, 0]


def test_a_listener_passes_its_event() -> None:
    class Event:
        progress = Progress(source({A: 5}, {A: 9}))

    assert lag(Event()) == [QueueLag(A, 5, 9)]  # type: ignore[arg-type]


def test_lag_is_not_0_before_the_first_progress() -> None:
    with pytest.raises(NoProgress, match="no progress yet, so its lag is not known"):
        lag(NotStarted())  # type: ignore[arg-type]


def test_lag_never_raises_for_other_sources() -> None:
    others: list[dict[str, Any]] = [{"endOffset": None}, {"endOffset": '{"orders":{"0":5}}'}, {"endOffset": "0"}]
    assert lag(Progress(*others)) == []  # type: ignore[arg-type]
    assert lag(Progress(source({A: 5}))) == [QueueLag(A, 5, 5)]  # type: ignore[arg-type]


def on_page(listener: LagListener) -> dict[tuple[str, ...], float]:
    """Returns the samples of the page: name without its prefix, values of the labels."""
    return {
        (sample.name.removeprefix("spark_rocketmq_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(listener.prometheus_text())
        for sample in family.samples
    }


def in_meters(reader: InMemoryMetricReader) -> dict[tuple[str, ...], float]:
    data = reader.get_metrics_data()
    return {
        (metric.name, *map(str, (point.attributes or {}).values())): point.value
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }


def started(run: str, name: str | None) -> Any:
    return SimpleNamespace(id="id", runId=run, name=name)


def ended(run: str, exception: str | None = None) -> Any:
    return SimpleNamespace(id="id", runId=run, exception=exception)


def progressed(name: str, rows: int, *sources: dict[str, Any]) -> Any:
    progress = {"id": "id", "name": name, "numInputRows": rows, "batchDuration": 250, "sources": sources}
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress | {"processedRowsPerSecond": rows * 4.0})))


def test_the_figures_of_every_query_for_prometheus_and_opentelemetry() -> None:
    reader = InMemoryMetricReader()
    listener = LagListener(meter_provider=MeterProvider([reader]))
    name = 'a "b"\\\n'
    listener.onQueryStarted(started("1", name))
    listener.onQueryStarted(started("2", None))
    listener.onQueryProgress(progressed(name, 5, source({A: 5, B: 7}, {A: 9, B: 7})))
    listener.onQueryProgress(progressed(name, 3, source({A: 8, B: 7}, {A: 9, B: 7}), {"endOffset": "0"}))
    listener.onQueryTerminated(ended("2", "lost"))
    values = on_page(listener)
    assert values["lag_messages", name, "orders", "broker-a", "0"] == 1
    assert values["lag_messages", name, "orders", "broker-b", "0"] == 0
    figures = ("rows_total", "batches_total", "batch_rows", "rows_per_second", "batch_seconds", "active")
    assert [values[figure, name] for figure in figures] == [8, 2, 3, 12, 0.25, 1]
    assert (values["active", "id"], values["failures_total", "id"], values["failures_total", name]) == (0, 1, 0)
    meters = in_meters(reader)
    assert meters["pyrmq.spark.lag", name, "orders", "broker-a", "0"] == 1
    assert (meters["pyrmq.spark.rows", name], meters["pyrmq.spark.failures", "id"]) == (8, 1)
    assert len(meters) == len(values)

    listener.onQueryStarted(started("3", name))  # the same query again: its counts go on
    for number in range(QUERIES_KEPT):
        listener.onQueryStarted(started(f"n{number}", f"n{number}"))
        listener.onQueryTerminated(ended(f"n{number}"))
    values = on_page(listener)
    assert (values["active", name], values["rows_total", name]) == (1, 8)
    assert ("active", "id") not in values
    assert sum(figure[0] == "active" for figure in values) == QUERIES_KEPT


def test_offsets_are_published_and_the_slower_of_two_sources_counts(cluster: EmbeddedCluster) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("orders", queues=1)
    publisher = OffsetPublisher("audit", query_name="mine", nameServer=cluster.nameserver)
    publisher.onQueryProgress(Progress(source({A: 1}), name="another"))  # type: ignore[arg-type]
    with PullConsumer("audit", nameserver=cluster.nameserver) as consumer:
        assert consumer.committed(A) is None
        publisher.onQueryProgress(Progress(source({A: 5, B: 8}), source({A: 4}), name="mine"))  # type: ignore[arg-type]
        assert (consumer.committed(A), consumer.committed(B)) == (4, 8)
    worker.close()


def test_what_cannot_be_published_is_logged_and_the_query_goes_on(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.NO_PERMISSION, "not you")

    control = cluster.control(RequestCode.UPDATE_CONSUMER_OFFSET, refused)
    progress = Progress(source({A: 5}))
    try:
        OffsetPublisher("others", nameServer=cluster.nameserver).onQueryProgress(progress)  # type: ignore[arg-type]
        assert "are not published under group others" in caplog.text
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_REFUSED\] group others: .*not you"):
            commit_offsets(progress, "others", nameServer=cluster.nameserver)  # type: ignore[arg-type]
    finally:
        control.remove()
        worker.close()


def test_where_to_publish_has_to_be_named() -> None:
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_INVALID_OPTION\] .*no NameServer is named"):
        OffsetPublisher("audit")
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_UNKNOWN_OPTION\] .*nameservr"):
        OffsetPublisher("audit", nameservr="x")
