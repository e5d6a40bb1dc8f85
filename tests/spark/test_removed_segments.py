"""Batches and streams over messages that our broker has removed: each says what is gone, or skips just that."""

from collections.abc import Iterator
from time import monotonic, sleep

import pytest

from pyrmq_core import MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.read.range_planner import QueueRange, RangePartition
from pyrmq_spark.source import RocketMQReader
from pyrmq_spark.spark_errors import RocketMQSparkError
from tests.support.removal import MESSAGES, SETTINGS, messages, remove_old, segments
from tests.support.spark import wait_readable
from tests.support.stream_queries import SCHEMA, Query

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(settings=SETTINGS) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("orders", queues=1)
        with Producer("setup", nameserver=cluster.nameserver) as producer:
            for at in range(0, MESSAGES, 50):
                producer.send_batch(messages("orders")[at : at + 50], queue=QUEUE)
        wait_readable(cluster.nameserver, "orders", MESSAGES)
        yield cluster
        worker.close()


def removed(cluster: EmbeddedCluster) -> int:
    """Has the old messages removed; returns the minimum offset."""
    deadline = monotonic() + 60
    while segments(cluster.directory / "broker-a") > 1:
        assert monotonic() < deadline
        remove_old(cluster.brokers["broker-a"])
        sleep(0.05)
    with PullConsumer("looks", nameserver=cluster.nameserver) as consumer:
        return consumer.min_offset(QUEUE)


def test_a_stream_and_a_batch_whose_messages_went_meanwhile(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queries = {
        fail: Query(cluster, topic="orders", startingOffsets="earliest", maxOffsetsPerTrigger=20, failOnDataLoss=fail)
        for fail in ("true", "false")
    }
    for query in queries.values():
        assert [int(body) for body in query.batch()] == list(range(20))
    planned = queries["true"].plan()
    low = removed(cluster)
    assert 60 < low < MESSAGES
    # The batch that was planned before, and the next one, of a stream that wants everything.
    start = queries["true"].start()
    with pytest.raises(RocketMQSparkError, match=rf"\[RMQ_DATA_LOSS\] .*offsets 20 to 40 .*keeps {low} to {MESSAGES}"):
        queries["true"].run(start, planned)
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] .*offsets 20 to "):
        queries["true"].batch()
    # A stream that goes on with what is left says what it skips.
    numbers = [int(body) for body in queries["false"].batch(everything=True)]
    assert numbers == list(range(low, MESSAGES))
    assert f"offsets 20 to {low}" in caplog.text
    # Batches over the whole range.
    for fail in ("true", "false"):
        options = {"topic": "orders", "failOnDataLoss": fail}
        reader = RocketMQReader(
            ConnectionOptions(name_server=cluster.nameserver), read_source(options), source_schema(SCHEMA)
        )
        batches = reader.read(RangePartition(QueueRange(QUEUE, 0, MESSAGES)))
        if fail == "true":
            with pytest.raises(RocketMQSparkError, match=rf"\[RMQ_DATA_LOSS\] .* keeps {low} to {MESSAGES}"):
                list(batches)
        else:
            rows = [row["queueOffset"] for batch in batches for row in batch.to_pylist()]
            assert rows == list(range(low, MESSAGES))
