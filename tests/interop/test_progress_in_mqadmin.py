"""The published progress of a query, as RocketMQ's own tool shows it for a consumer group."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyrmq_core import MessageQueue
from pyrmq_core.blocking import PullConsumer
from pyrmq_spark import OffsetPublisher, commit_offsets
from tests.support.apache import ApacheCluster
from tests.support.spark import spark
from tests.support.spark_batches import topic
from tests.support.spark_streams import Topic, run, sender, sent, stream, wait_until

__all__ = ["sender", "sent", "spark", "topic"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(360)]


@pytest.fixture
def nameserver(apache: ApacheCluster) -> str:
    return apache.nameserver.address


def progress_of(apache: ApacheCluster, group: str) -> dict[MessageQueue, tuple[int, int]]:
    """Returns each queue's end and the group's offset in it: the first five columns of each line."""
    printed = apache.mqadmin("consumerProgress", "-g", group)
    rows = [line.split() for line in printed.splitlines() if line.strip() and not line.startswith("#")]
    return {
        MessageQueue(row[0], row[1], int(row[2])): (int(row[3]), int(row[4]))
        for row in rows
        if len(row) > 5 and not row[0].startswith("%RETRY%") and row[2].isdecimal()
    }


def test_consumer_progress_shows_where_a_query_stands(
    spark: SparkSession, apache: ApacheCluster, sent: Topic, tmp_path: Path
) -> None:
    """The publisher also commits the last batch, which Spark does not report to a source.

    The tool shows the group with the next offsets, and messages sent since as its lag.
    """
    first, second = sent.queues()[0], sent.queues()[-1]
    sent.send(0, 30, first)
    sent.send(30, 35, second)
    group = f"g_{sent.name}"
    publisher = OffsetPublisher(group, nameServer=sent.nameserver)
    spark.streams.addListener(publisher)
    frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    try:
        query = run(frame, tmp_path)
        with PullConsumer(group, nameserver=sent.nameserver, timeout=20) as consumer:
            wait_until(lambda: (consumer.committed(first), consumer.committed(second)) == (30, 5))
    finally:
        spark.streams.removeListener(publisher)
    sent.send(35, 42, first)
    shown = progress_of(apache, group)
    assert (shown[first], shown[second]) == ((37, 30), (5, 5))
    other = f"{group}_other"
    commit_offsets(query, other, nameServer=sent.nameserver)
    shown = progress_of(apache, other)
    assert (shown[first], shown[second]) == ((37, 30), (5, 5))
