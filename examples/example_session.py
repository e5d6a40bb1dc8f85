"""The session of each example, and its servers: those of NAMESRV_ADDR, or its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from pyrmq_core.blocking import EmbeddedCluster, PullConsumer
from pyrmq_spark import session_settings


@contextmanager
def demonstration() -> Iterator[tuple[SparkSession, str]]:
    named = os.environ.get("NAMESRV_ADDR")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pyrmq example")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=session_settings())
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        if named:
            yield spark, named
        else:
            with EmbeddedCluster() as cluster:
                yield spark, cluster.nameserver
    finally:
        spark.stop()


def write(frame: DataFrame, nameserver: str, topic: str) -> None:
    """Adds the rows, and waits until they can be read: a broker acknowledges a message before it has indexed it."""
    rows, before = frame.count(), held(nameserver, topic)
    frame.write.format("rocketmq").option("nameServer", nameserver).option("topic", topic).mode("append").save()
    wait_readable(nameserver, topic, before + rows)


def wait_readable(nameserver: str, topic: str, rows: int) -> None:
    """Waits until the topic holds `rows` messages."""
    while held(nameserver, topic) < rows:
        pass


def held(nameserver: str, topic: str) -> int:
    """Returns the number of messages in a topic."""
    with PullConsumer("pyrmq-examples", nameserver=nameserver) as consumer:
        queues = consumer.current_queues([topic])[topic] or ()
        return sum(bounds.end - bounds.start for bounds in consumer.offset_bounds(queues).values())
