"""Writes and streams from threads of a driver, which have no active session of their own."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_spark import activate_session, lag, session_settings, topics
from tests.support.spark import read, wait_readable, write

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_a_thread_with_an_active_session_writes_and_starts_streams(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    frame = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) as body")

    def copy() -> None:
        stream = spark.readStream.format("rocketmq").options(nameServer=cluster.nameserver, topic=topic)
        writer = stream.option("startingOffsets", "earliest").load().select("body").writeStream.format("rocketmq")
        options = {"nameServer": cluster.nameserver, "topic": topic, "checkpointLocation": str(tmp_path)}
        writer.options(**options).trigger(availableNow=True).start().awaitTermination()

    with ThreadPoolExecutor(1) as plain:
        for job in (lambda: write(frame, cluster.nameserver, topic=topic), copy):
            with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):  # Spark's own; else the call is needless
                plain.submit(job).result()
    with ThreadPoolExecutor(1, initializer=activate_session, initargs=(spark,)) as active:
        active.submit(write, frame, cluster.nameserver, topic=topic).result()
        wait_readable(cluster.nameserver, topic, 10)
        active.submit(copy).result()
    wait_readable(cluster.nameserver, topic, 20)
    assert read(spark, cluster.nameserver, "body string", topic=topic).count() == 20


def test_an_interrupt_takes_the_active_session_and_the_main_thread_gets_it_back(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    """An interrupt ends the thread's connection to the JVM: the next one belongs to a thread without a session."""
    session_settings()
    frame = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) as body")
    jvm: Any = spark._jvm

    def interrupt() -> None:
        jvm.SparkSession.clearActiveSession()
        assert jvm.SparkSession.getActiveSession().isEmpty()

    def is_active() -> bool:
        return bool(jvm.SparkSession.getActiveSession().isDefined())

    interrupt()
    write(frame, cluster.nameserver, topic=topic)
    interrupt()
    stream = spark.readStream.format("rocketmq").options(nameServer=cluster.nameserver, topic=topic)
    writer = stream.option("startingOffsets", "earliest").load().select("body").writeStream.format("rocketmq")
    options = {"nameServer": cluster.nameserver, "topic": topic, "checkpointLocation": str(tmp_path)}
    query = writer.options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    interrupt()
    lag(query)
    assert is_active()
    interrupt()
    topics(spark, pattern=topic, sample=0, nameServer=cluster.nameserver)
    assert is_active()
    wait_readable(cluster.nameserver, topic, 20)
    assert read(spark, cluster.nameserver, "body string", topic=topic).count() == 20
