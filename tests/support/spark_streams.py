"""Streams for every cluster, ours and RocketMQ's own; subclasses supply the NameServer fixture."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, window
from pyspark.sql.streaming.query import StreamingQuery

from pyrmq_core import Message, MessageQueue, RocketMQError
from pyrmq_core.blocking import Admin, Producer, PullConsumer
from pyrmq_spark import LineageListener, OffsetPublisher, QueueLag, commit_offsets, lag
from pyrmq_spark.pyspark_releases import has_admission_control
from tests.support.proxies import administered, topic_attributes
from tests.support.spark import wait_readable

SECONDS = 280  # the end of a query that hangs
# Before PySpark 4.2 `availableNow` is one batch: the one that failed, if one did.
RUNS_AFTER_A_FAILURE = 1 if has_admission_control() else 2
Row = tuple[str, int, int, str]


class Topic:
    """A topic of its own for each test, with a count of the messages sent to it."""

    def __init__(self, nameserver: str, name: str, producer: Producer, admin: Admin) -> None:
        self.nameserver = nameserver
        self.name = name
        self.admin = admin
        self._producer = producer
        self._sent = 0

    def create(self, queues: int = 2, name: str | None = None) -> None:
        """Returns when every broker's queues are in the route: a stream reads later queues from their start."""
        attributes = topic_attributes(self.nameserver)
        self.admin.create_topic(name or self.name, queues=queues, attributes=attributes)
        masters = set(self.admin.cluster_info().broker_addr_table)
        deadline = time.monotonic() + SECONDS
        while self._routed(name or self.name) != masters:
            assert time.monotonic() < deadline, f"the route of {name or self.name} lacks a broker of {masters}"
            time.sleep(0.05)

    def _routed(self, topic: str) -> set[str]:
        try:
            return {queue_data.broker_name for queue_data in self.admin.route(topic).queue_datas}
        except RocketMQError:
            return set()

    def another(self, suffix: str) -> Topic:
        """Returns a second topic of the same test."""
        topic = Topic(self.nameserver, f"{self.name}_{suffix}", self._producer, self.admin)
        topic.create()
        return topic

    def queues(self) -> list[MessageQueue]:
        return sorted(self._producer.message_queues(self.name))

    def send(self, first: int, last: int, queue: MessageQueue | None = None) -> None:
        """Sends numbered messages, tagged by their remainder of 3; they are readable when this returns."""
        messages = [
            Message(self.name, f"{n}".encode(), tags=f"t{n % 3}", properties={"n": str(n)}) for n in range(first, last)
        ]
        self._sent += len(messages)
        self._producer.send_batch(messages, queue=queue)
        wait_readable(self.nameserver, self.name, self._sent)

    def send_quietly(self, number: int, queue: MessageQueue) -> None:
        """Sends one message and does not wait until it is readable, which would need a NameServer."""
        self._sent += 1
        self._producer.send(Message(self.name, f"{number}".encode()), queue=queue)


@pytest.fixture(scope="module")
def sender(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Producers and admins by NameServer, kept for the module."""
    kept: dict[str, Any] = {}
    yield kept
    for face in kept.values():
        face.close()


@pytest.fixture
def sent(nameserver: str, topic: str, sender: dict[str, Any]) -> Topic:
    producer = sender.setdefault(f"producer {nameserver}", Producer("setup", nameserver=nameserver, send_timeout=20))
    admin = sender.setdefault(f"admin {nameserver}", Admin(nameserver=administered(nameserver), timeout=20))
    target = Topic(nameserver, topic, producer, admin)
    target.create()
    return target


def stream(spark: SparkSession, nameserver: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("nameServer", nameserver)
    return reader.option("pollNameServerIntervalMs", 1000).options(**options).load()


def start(frame: DataFrame, directory: Path, **trigger: Any) -> StreamingQuery:
    """Starts a query that writes rows to parquet files under `directory`, each once even after restarts."""
    columns = frame.selectExpr("topic", "brokerName", "queueId", "queueOffset", "cast(body as string) as body")
    writer = columns.writeStream.format("parquet").option("path", str(directory / "rows"))
    return writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(**trigger).start()


def run(frame: DataFrame, directory: Path, **trigger: Any) -> StreamingQuery:
    """Runs a query to its end, with `availableNow` unless another trigger is named."""
    query = start(frame, directory, **(trigger or {"availableNow": True}))
    try:
        assert query.awaitTermination(SECONDS), "the query did not end in time"
    finally:
        query.stop()
    return query


def bodies(spark: SparkSession, directory: Path) -> list[int]:
    """Returns the numbers that arrived, sorted; fails when one position arrived twice."""
    rows = spark.read.schema("topic string, brokerName string, queueId int, queueOffset long, body string").parquet(
        str(directory / "rows")
    )
    results = rows.collect()
    assert len({tuple(row)[:4] for row in results}) == len(results)
    return sorted(int(row.body) for row in results)


def batches(query: StreamingQuery) -> list[int]:
    """Returns the rows of each batch that had some."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def raise_failure(query: StreamingQuery) -> None:
    """Raises the error of a query that failed; does nothing for another one."""
    if (error := query.exception()) is not None:
        raise error


def wait_until(reached: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"not reached within {seconds} s"
        time.sleep(0.05)


class StreamJobs:
    """Each test reads a topic of its own."""

    def test_everything_once_over_stops_and_starts(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        sent.send(0, 100)
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest")
        run(frame, tmp_path)
        assert bodies(spark, tmp_path) == list(range(100))
        run(frame, tmp_path)
        sent.send(100, 150)
        run(frame, tmp_path)
        assert bodies(spark, tmp_path) == list(range(150))

    def test_latest_sees_what_comes(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        sent.send(0, 10)
        query = start(stream(spark, sent.nameserver, topic=sent.name), tmp_path, processingTime="100 milliseconds")
        try:
            query.processAllAvailable()
            sent.send(10, 20)
            query.processAllAvailable()
            sent.send(20, 25)
            query.processAllAvailable()
        finally:
            query.stop()
        assert bodies(spark, tmp_path) == list(range(10, 25))

    def test_available_now_keeps_the_cap_and_its_end(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        queue = sent.queues()[0]
        sent.send(0, 15, queue)
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest", maxOffsetsPerTrigger=5)
        query = run(frame, tmp_path)
        assert batches(query) == [5, 5, 5]
        assert bodies(spark, tmp_path) == list(range(15))

    def test_once_takes_all(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        sent.send(0, 15)
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest", maxOffsetsPerTrigger=5)
        assert batches(run(frame, tmp_path, once=True)) == [15]

    def test_tags_leave_gaps_under_a_cap_and_over_a_restart(
        self, spark: SparkSession, sent: Topic, tmp_path: Path
    ) -> None:
        sent.send(0, 60, sent.queues()[0])
        options = {"topic": sent.name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 25}
        query = run(stream(spark, sent.nameserver, tags="t1", **options), tmp_path)
        assert bodies(spark, tmp_path) == list(range(1, 60, 3))
        assert query.lastProgress is not None
        last = json.loads(query.lastProgress["sources"][0]["endOffset"])
        queue = sent.queues()[0]
        assert last["offsets"][sent.name][queue.broker_name][str(queue.queue_id)] == 60
        sent.send(60, 90)
        query = run(stream(spark, sent.nameserver, tags="t1", **options), tmp_path)
        assert bodies(spark, tmp_path) == list(range(1, 90, 3))
        assert len(batches(query)) >= 2
        run(stream(spark, sent.nameserver, tags="nobody", **options), tmp_path / "none")
        assert bodies(spark, tmp_path / "none") == []

    def test_sql_over_properties(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        sent.send(0, 60)
        options = {"topic": sent.name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 25}
        run(stream(spark, sent.nameserver, sql="n BETWEEN 10 AND 19 AND TAGS <> 't0'", **options), tmp_path)
        assert bodies(spark, tmp_path) == [n for n in range(10, 20) if n % 3]
        rows = spark.read.format("rocketmq").options(nameServer=sent.nameserver, topic=sent.name, sql="n = 7").load()
        assert [bytes(row.body) for row in rows.collect()] == [b"7"]
        wrong = stream(spark, sent.nameserver, sql="n = ", **options)
        with pytest.raises(StreamingQueryException, match=r"\[RMQ_INVALID_OPTION\] .*option sql is 'n ='"):
            run(wrong, tmp_path / "wrong")

    def test_new_queues_from_their_beginning(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        frame = stream(spark, sent.nameserver, topic=sent.name)
        run(frame, tmp_path)
        sent.create(queues=3)
        newest = MessageQueue(sent.name, "broker-a", 2)
        sent.send(0, 5, newest)
        run(frame, tmp_path)
        assert bodies(spark, tmp_path) == list(range(5))

    def test_times_start_a_stream(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        """4.9 answers searches by time otherwise than 5.x: the rows are the same."""
        sent.send(0, 10)
        rows = spark.read.format("rocketmq").options(nameServer=sent.nameserver, topic=sent.name).load()
        newest = max(row.storeTimestamp for row in rows.select("storeTimestamp").collect()).timestamp()
        sent.send(10, 20)
        stamps = {
            row.storeTimestamp.timestamp()
            for row in rows.sparkSession.read.format("rocketmq")
            .options(nameServer=sent.nameserver, topic=sent.name)
            .load()
            .select("storeTimestamp")
            .collect()
        }
        cut = min((stamp for stamp in stamps if stamp > newest), default=newest)
        frame = stream(
            spark,
            sent.nameserver,
            topic=sent.name,
            startingTimestamp=round(cut * 1000),
            startingOffsetsByTimestampStrategy="latest",
        )
        run(frame, tmp_path)
        assert bodies(spark, tmp_path) == list(range(10, 20))

    def test_a_deleted_topic_fails_the_query_by_name(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        sent.send(0, 5)
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest")
        run(frame, tmp_path)
        sent.admin.delete_topic(sent.name)
        with pytest.raises((StreamingQueryException, RocketMQError), match=r"\[RMQ_DATA_LOSS\] .*is gone after offset"):
            run(frame, tmp_path)

    def test_progress_shows_lag_and_is_published(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        queue = sent.queues()[0]
        sent.send(0, 30, queue)
        group = f"g_{sent.name}"
        publisher = OffsetPublisher(group, nameServer=sent.nameserver)
        events: list[dict[str, Any]] = []
        lineage = LineageListener(events.append, running_every=3600, nameServer=sent.nameserver)
        spark.streams.addListener(publisher)
        spark.streams.addListener(lineage)
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest", maxOffsetsPerTrigger=10)
        try:
            query = start(frame, tmp_path, processingTime="100 milliseconds")
            query.processAllAvailable()
        finally:
            query.stop()
        lags = {queue_lag.queue: queue_lag for queue_lag in lag(query)}
        assert lags[queue] == QueueLag(queue, 30, 30)
        first = next(progress for progress in query.recentProgress if progress.numInputRows)
        assert json.loads(first["sources"][0]["latestOffset"])["offsets"][sent.name]
        with PullConsumer(group, nameserver=sent.nameserver, timeout=20) as consumer:
            wait_until(lambda: consumer.committed(queue) == 30)
            spark.streams.removeListener(publisher)
            other = f"{group}_2"
            assert commit_offsets(query, other, nameServer=sent.nameserver)[queue] == 30
        wait_until(lambda: bool(events) and events[-1]["eventType"] == "COMPLETE")
        spark.streams.removeListener(lineage)
        assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
        dataset = {"namespace": f"rocketmq://{sent.nameserver.partition(';')[0]}", "name": sent.name}
        assert all(event["inputs"] == [dataset] and event["run"]["runId"] == str(query.runId) for event in events)
        with PullConsumer(other, nameserver=sent.nameserver, timeout=20) as consumer:
            assert consumer.committed(queue) == 30
            assert consumer.current_queues([f"%RETRY%{other}"])[f"%RETRY%{other}"] is not None

    def test_windows_by_the_time_of_storing(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        sent.send(0, 30)
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest")
        windows = frame.withWatermark("storeTimestamp", "1 minute").groupBy(window("storeTimestamp", "1 day"), "tags")
        counted = windows.count().selectExpr("tags", "count", "abs(datediff(window.start, now())) < 2 as recent")
        query = counted.writeStream.format("memory").queryName("counted").outputMode("complete")
        running = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert running.awaitTermination(SECONDS)
        rows = spark.table("counted").where("recent").groupBy("tags").sum("count").collect()
        assert dict(map(tuple, rows)) == {"t0": 10, "t1": 10, "t2": 10}

    def test_a_sink_that_fails_in_batch_0_gets_the_same_rows_again(
        self, spark: SparkSession, sent: Topic, tmp_path: Path
    ) -> None:
        """Spark asks anew where the query starts, and by then that lies behind the rows of batch 0."""
        queue = sent.queues()[0]
        sent.send(0, 8, queue)
        group = f"g_{sent.name}"
        got: list[list[int]] = []

        def failing(batch: DataFrame, number: int) -> None:
            got.append(sorted(int(row.body) for row in batch.selectExpr("cast(body as string) as body").collect()))
            if len(got) == 1:
                raise ValueError("the sink fails")

        def query() -> StreamingQuery:
            frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="committed", consumerGroup=group)
            writer = frame.writeStream.foreachBatch(failing).option("checkpointLocation", str(tmp_path))
            return writer.trigger(availableNow=True).start()

        with PullConsumer(group, nameserver=sent.nameserver, timeout=20) as consumer:
            consumer.commit(queue, 5)
            with pytest.raises(StreamingQueryException, match="the sink fails"):
                query().awaitTermination(SECONDS)
            consumer.commit(queue, 8)
            sent.send(8, 12, queue)
            for _ in range(RUNS_AFTER_A_FAILURE):
                assert query().awaitTermination(SECONDS)
        assert got == [[5, 6, 7], [5, 6, 7], [8, 9, 10, 11]]

    def test_a_poison_row_fails_a_run_of_available_now_again_though_queues_have_come(
        self, spark: SparkSession, sent: Topic, tmp_path: Path
    ) -> None:
        """The batch that failed is planned as it was; what came meanwhile is for the batches after it."""
        sent.send(0, 15, sent.queues()[0])
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest", maxOffsetsPerTrigger=5)
        poisoned = frame.withColumn("body", expr("if(body = '7', raise_error('row 7 is poison'), body)"))
        with pytest.raises(StreamingQueryException, match="row 7 is poison"):
            run(poisoned, tmp_path)
        sent.create(queues=3)
        sent.send(15, 20, MessageQueue(sent.name, "broker-a", 2))
        with pytest.raises(StreamingQueryException, match="row 7 is poison"):
            run(poisoned, tmp_path)
        assert bodies(spark, tmp_path) == list(range(5))
        query = run(frame, tmp_path)
        assert batches(query)[0] == 5
        assert bodies(spark, tmp_path) == list(range(20))
