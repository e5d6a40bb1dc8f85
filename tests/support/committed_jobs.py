"""Jobs of committed writes for every cluster, ours and RocketMQ's own; subclasses supply the NameServer fixture."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyrmq_core import OffsetRange, decode
from pyrmq_core.blocking import Admin, PullConsumer
from pyrmq_spark import lag
from pyrmq_spark.pyspark_releases import has_admission_control
from tests.support.spark import read, wait_readable, write
from tests.support.spark_streams import SECONDS, Topic, batches, bodies, run, stream


def numbered(spark: SparkSession, first: int, last: int, partitions: int = 3) -> DataFrame:
    return spark.range(first, last, 1, partitions).selectExpr(
        "cast(id as string) as body", "concat('t', id % 3) as tags", "cast(id % 5 as string) as shardingKey"
    )


def commit(frame: DataFrame, nameserver: str, topic: str, version: int | None = None, **options: Any) -> None:
    if version is not None:
        options |= {"txnAppId": "loader", "txnVersion": version}
    write(frame, nameserver, topic=topic, delivery="committed", **options)


def committed(spark: SparkSession, nameserver: str, topic: str, **options: Any) -> list[int]:
    """Returns the numbers that a committed read gives, sorted."""
    rows = read(spark, nameserver, "body string", topic=topic, isolation="committed", **options).collect()
    return sorted(int(row.body) for row in rows)


def copy_committed(
    spark: SparkSession, nameserver: str, source: str, to: str, directory: Path, **options: Any
) -> StreamingQuery:
    """Runs a stream from one topic to another to its end; the write is committed."""
    frame = stream(spark, nameserver, topic=source, startingOffsets="earliest", **options)
    writer = frame.selectExpr("body", "tags").writeStream.format("rocketmq").option("nameServer", nameserver)
    writer = writer.option("topic", to).option("delivery", "committed").option("checkpointLocation", str(directory))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(SECONDS), "the query did not end in time"
    finally:
        query.stop()
    return query


class CommittedJobs:
    """Each test writes to a topic of its own."""

    def test_a_batch_is_read_once(self, spark: SparkSession, nameserver: str, sent: Topic) -> None:
        commit(numbered(spark, 0, 1000), nameserver, sent.name, version=1)
        commit(numbered(spark, 0, 1000), nameserver, sent.name, version=1)  # as after a kill: it is there already
        write(numbered(spark, 5000, 5100), nameserver, topic=sent.name)  # is in no commit
        commit(numbered(spark, 1000, 1500), nameserver, sent.name, version=2)
        commit(numbered(spark, 7000, 7100), nameserver, sent.name, version=1)
        commit(numbered(spark, 1500, 1600), nameserver, sent.name)
        assert committed(spark, nameserver, sent.name) == list(range(1600))
        assert committed(spark, nameserver, sent.name, tags="t1 || t2") == [n for n in range(1600) if n % 3]
        assert committed(spark, nameserver, sent.name, maxRecordsPerPartition=90) == list(range(1600))
        wait_readable(nameserver, sent.name, 1700)
        with PullConsumer("audit", nameserver=nameserver, timeout=20) as consumer:
            manifest = consumer.read_manifest(f"{sent.name}-committed")
            assert [(commit.writer, commit.number, commit.rows) for commit in manifest.commits[:2]] == [
                ("loader", 1, 1000),
                ("loader", 2, 500),
            ]
            with consumer.read_committed(sent.name, 1, 2) as pulls:
                messages = [m for pull in pulls for m in decode(pull, OffsetRange(pull.start, pull.next_offset))]
            assert sorted(int(message.body) for message in messages) == list(range(1000, 1500))

    def test_rows_are_in_order_within_a_key(self, spark: SparkSession, nameserver: str, sent: Topic) -> None:
        for version in range(3):
            commit(numbered(spark, version * 500, version * 500 + 500, 1), nameserver, sent.name, version=version)
        columns = "body string, shardingKey string, brokerName string, queueId int, queueOffset long"
        frame = read(spark, nameserver, columns, topic=sent.name, isolation="committed")
        rows = sorted(frame.collect(), key=lambda row: (row.brokerName, row.queueId, row.queueOffset))
        for key in "01234":
            assert [int(row.body) for row in rows if row.shardingKey == key] == list(range(int(key), 1500, 5))

    def test_a_batch_topic(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        options = {"createTopic": "batch", "topicQueueNums": 2}
        for version in range(3):
            commit(numbered(spark, version * 100, version * 100 + 100), nameserver, topic, version=version, **options)
            write(numbered(spark, 900, 950), nameserver, topic=topic)
        assert committed(spark, nameserver, topic) == list(range(300))

    def test_a_stream_over_stops_and_lost_logs(
        self, spark: SparkSession, nameserver: str, sent: Topic, tmp_path: Path
    ) -> None:
        """The driver dies behind the record and before Spark's own log, so its batch runs again."""
        to, checkpoint = sent.another("copy").name, tmp_path / "sink"
        frame = stream(spark, nameserver, topic=to, startingOffsets="earliest", isolation="committed")
        for number in range(3):
            sent.send(number * 100, number * 100 + 100)
            copy_committed(spark, nameserver, sent.name, to, checkpoint)
            run(frame, tmp_path / "reader") if number else None
            for log in (checkpoint / "commits").glob(f"*{number}*"):
                log.unlink()
            copy_committed(spark, nameserver, sent.name, to, checkpoint)
        run(frame, tmp_path / "reader")
        assert bodies(spark, tmp_path / "reader") == list(range(300))
        assert committed(spark, nameserver, to) == list(range(300))

    def test_a_copy_of_a_checkpoint_is_refused(
        self, spark: SparkSession, nameserver: str, sent: Topic, tmp_path: Path
    ) -> None:
        to = sent.another("copy").name
        sent.send(0, 50)
        copy_committed(spark, nameserver, sent.name, to, tmp_path / "first")
        shutil.copytree(tmp_path / "first", tmp_path / "second")
        for number in (1, 2):
            sent.send(number * 50, number * 50 + 50)
            copy_committed(spark, nameserver, sent.name, to, tmp_path / "first")
        sent.send(150, 160)
        with pytest.raises(PySparkException, match=r"RMQ_CONCURRENT_WRITE.*comes late"):
            copy_committed(spark, nameserver, sent.name, to, tmp_path / "second")
        assert committed(spark, nameserver, to) == list(range(150))

    def test_limits_count_rows(self, spark: SparkSession, nameserver: str, sent: Topic, tmp_path: Path) -> None:
        for version in range(4):
            commit(numbered(spark, version * 10, version * 10 + 10), nameserver, sent.name, version=version)
        frame = stream(
            spark,
            nameserver,
            topic=sent.name,
            startingOffsets="earliest",
            isolation="committed",
            maxOffsetsPerTrigger=25,
        )
        query = run(frame, tmp_path)
        assert batches(query) == [20, 20]
        if has_admission_control():
            lags = [
                lag(SimpleNamespace(progress=progress))[0]  # type: ignore[arg-type]
                for progress in query.recentProgress[:2]
            ]
            assert [(queue_lag.behind, queue_lag.rows) for queue_lag in lags] == [(2, 20), (0, 0)]
        assert bodies(spark, tmp_path) == list(range(40))

    def test_refused_by_name(self, spark: SparkSession, nameserver: str, sent: Topic) -> None:
        with pytest.raises(PySparkException, match=f"topic {sent.name} has no manifest {sent.name}-committed"):
            read(spark, nameserver, topic=sent.name, isolation="committed").collect()
        delayed = numbered(spark, 0, 5).selectExpr("body", "3 as delayLevel")
        with pytest.raises(PySparkException, match=r"RMQ_INVALID_COLUMN.*delayLevel.*are not there yet"):
            commit(delayed, nameserver, sent.name)
        with Admin(nameserver=nameserver, timeout=20) as admin:
            admin.create_topic(f"{sent.name}_m", queues=4)
        with pytest.raises(PySparkException, match=r"RMQ_MANIFEST.*it has \d+ queues"):
            commit(numbered(spark, 0, 5), nameserver, sent.name, manifestTopic=f"{sent.name}_m")
