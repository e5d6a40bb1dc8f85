"""Cases that run on every release of PySpark: the differences between releases, and a little of all that they share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyrmq_spark import QueueLag, RocketMQDataSource, lag, register, session_settings
from pyrmq_spark.pyspark_releases import has_admission_control, has_stream_arrow_writer, has_unix_sockets
from pyrmq_spark.spark_errors import OldPySpark
from tests.support.spark import read, wait_readable, write
from tests.support.spark_batches import topic
from tests.support.spark_streams import RUNS_AFTER_A_FAILURE, SECONDS, Topic, batches, run, sender, sent, stream

__all__ = ["sender", "sent", "topic"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

NOBODY = "127.0.0.1:1"
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


def test_settings_of_a_session_are_those_that_the_release_has(spark: SparkSession) -> None:
    name = "spark.python.unix.domain.socket.enabled"
    jvm: Any = spark._jvm
    entry = jvm.org.apache.spark.internal.config.ConfigEntry.findEntry(name)
    assert (name in session_settings()) is (entry is not None)
    enabled = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED"))
    assert (str(enabled.first()).lower() == "true") is has_unix_sockets()


def test_limits_and_lag_are_there_or_refused_by_name(spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
    queue = sent.queues()[0]
    sent.send(0, 15, queue)
    frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    if has_admission_control():
        query = run(frame, tmp_path)
        assert batches(query) == [5, 5, 5]
        assert QueueLag(queue, 15, 15) in lag(query)
    else:
        with pytest.raises(PySparkException, match=r"\[RMQ_OLD_PYSPARK\] maxOffsetsPerTrigger.*need PySpark 4.2"):
            run(frame, tmp_path)
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest")
        query = run(frame, tmp_path / "unlimited")
        assert batches(query) == [15]
        with pytest.raises(OldPySpark, match=r"before PySpark 4\.2 a query does not report"):
            lag(query)


def test_a_source_that_is_registered_though_it_is_installed(spark: SparkSession, nameserver: str, topic: str) -> None:
    """A session of its own: what is registered there counts for no other one."""
    session = spark.newSession()
    register(session)
    register(session)
    if not has_stream_arrow_writer():  # 4.0
        with pytest.raises(PySparkException, match="DATA_SOURCE_ALREADY_EXISTS"):
            session.dataSource.register(RocketMQDataSource)
    write(session.range(0, 10, 1, 1).selectExpr("cast(id as string) as body"), nameserver, topic=topic)
    wait_readable(nameserver, topic, 10)
    assert read(session, nameserver, "body string", topic=topic).count() == 10


def test_columns_by_name_there_and_back(spark: SparkSession, nameserver: str, topic: str) -> None:
    columns = (
        f"'{topic}' as topic",
        "cast(id as string) as value",
        "'t' as tags",
        "array('a', 'b') as keys",
        "map('n', cast(id as string)) as properties",
        "concat('k', id % 2) as shardingKey",
    )
    write(spark.range(0, 20, 1, 2).selectExpr(*columns), nameserver)
    wait_readable(nameserver, topic, 20)
    named = "properties map<string,string>, keys string, storeTimestamp timestamp, body string, queueId int"
    rows = read(spark, nameserver, named, topic=topic)
    assert rows.columns == ["properties", "keys", "storeTimestamp", "body", "queueId"]
    assert sorted((int(row.body), int(row.properties["n"]), row.keys) for row in rows.collect()) == [
        (number, number, "a b") for number in range(20)
    ]
    per_key = rows.selectExpr("properties['SHARDING_KEY'] as key", "queueId", "storeTimestamp is null as lost")
    assert {(row.key, row.lost) for row in per_key.collect()} <= {("k0", False), ("k1", False), (None, False)}


@pytest.mark.parametrize("wrapped", [False, True], ids=["", "wrapped"])
def test_a_stream_between_topics_goes_on_over_restarts_and_a_dead_sink(
    spark: SparkSession, sent: Topic, tmp_path: Path, wrapped: bool
) -> None:
    """The batch that found no NameServer comes again whole, and only the rows that came meanwhile follow it.

    Under Spark's wrapper for sources of old, `availableNow` goes on after that batch on each release.
    """
    target = sent.another("target")

    def copy(nameserver: str) -> StreamingQuery:
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest").select("body", "tags")
        writer = frame.writeStream.format("rocketmq").options(nameServer=nameserver, topic=target.name)
        writer = writer.option("sendTimeoutMs", 1000).option("checkpointLocation", str(tmp_path / "copy"))
        return writer.trigger(availableNow=True).start()

    spark.conf.set(WRAPPER, wrapped)
    try:
        sent.send(0, 20)
        assert copy(sent.nameserver).awaitTermination(SECONDS)
        sent.send(20, 30)
        with pytest.raises(StreamingQueryException, match=rf"\[RMQ_\w+\] .*{NOBODY}"):
            copy(NOBODY).awaitTermination(SECONDS)
        sent.send(30, 35)
        for _ in range(1 if wrapped else RUNS_AFTER_A_FAILURE):
            assert copy(sent.nameserver).awaitTermination(SECONDS)
    finally:
        spark.conf.unset(WRAPPER)
    wait_readable(sent.nameserver, target.name, 35)
    rows = read(spark, sent.nameserver, "body string", topic=target.name).collect()
    assert sorted(int(row.body) for row in rows) == list(range(35))


def test_a_write_to_nobody_fails_by_name(spark: SparkSession) -> None:
    frame = spark.range(0, 3, 1, 1).selectExpr("cast(id as string) as body")
    with pytest.raises(PySparkException, match=rf"\[RMQ_\w+\] partition 0: .*{NOBODY}"):
        write(frame, NOBODY, topic="t", sendTimeoutMs=1000)
