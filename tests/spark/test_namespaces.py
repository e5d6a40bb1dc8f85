"""Reading in a namespace: options and rows name topics as their tenant does, brokers get the full names."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.source import RocketMQReader
from pyrmq_spark.stream.stream_reader import RocketMQStreamReader
from tests.support.spark import wait_readable

SCHEMA = source_schema(StructType([StructField("queueOffset", LongType()), StructField("topic", StringType())]))
QUEUE = MessageQueue("tenant%orders", "broker-a", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Three messages of `orders` in the namespace `tenant`, two of another `orders` outside of it."""
    with EmbeddedCluster(brokers=1) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            for topic in ("orders", "tenant%orders"):
                admin.create_topic(topic, queues=1)
        with Producer("setup", nameserver=cluster.nameserver) as producer:
            producer.send_batch([Message("orders", b"x")] * 2)
        with Producer("setup", nameserver=cluster.nameserver, namespace="tenant") as producer:
            producer.send_batch([Message("orders", b"x")] * 3)
        wait_readable(cluster.nameserver, "orders", 2)
        wait_readable(cluster.nameserver, "tenant%orders", 3)
        yield cluster
        worker.close()


def rows(cluster: EmbeddedCluster, **options: Any) -> list[tuple[int, str]]:
    connection = ConnectionOptions(name_server=cluster.nameserver, namespace=options.get("namespace"))
    reader = RocketMQReader(connection, read_source(options), SCHEMA)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [(row["queueOffset"], row["topic"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "choice",
    [
        {"topic": "orders"},
        {"topic": "tenant%orders"},
        {"topicPattern": "ord.*"},
        {"assign": '{"orders":{"broker-a":[0]}}'},
        {"topic": "orders", "startingOffsetsByTimestamp": '{"orders":0}'},
    ],
)
def test_a_topic_of_the_namespace(cluster: EmbeddedCluster, choice: dict[str, str]) -> None:
    assert rows(cluster, namespace="tenant", **choice) == [(0, "orders"), (1, "orders"), (2, "orders")]


def test_offsets_of_the_namespace(cluster: EmbeddedCluster) -> None:
    start, end = ({"orders": {"broker-a": {"0": offset}}} for offset in (1, 2))
    given = {"startingOffsets": json.dumps(start), "endingOffsets": json.dumps(end)}
    assert rows(cluster, namespace="tenant", topic="orders", **given) == [(1, "orders")]


def test_without_a_namespace_nothing_of_it_is_read(cluster: EmbeddedCluster) -> None:
    assert rows(cluster, topic="orders") == [(0, "orders"), (1, "orders")]
    assert rows(cluster, topicPattern="ord.*") == [(0, "orders"), (1, "orders")]
    assert rows(cluster, topic="tenant%orders")[0] == (0, "tenant%orders")


def test_a_group_of_the_namespace(cluster: EmbeddedCluster) -> None:
    with PullConsumer("tenant%audit", nameserver=cluster.nameserver) as consumer:
        consumer.commit(QUEUE, 2)
        options = {"topic": "orders", "namespace": "tenant", "consumerGroup": "audit"}
        assert rows(cluster, **options, startingOffsets="committed") == [(2, "orders")]
        connection = ConnectionOptions(name_server=cluster.nameserver, namespace="tenant")
        reader = RocketMQStreamReader(connection, read_source(options | {"startingOffsets": "earliest"}), SCHEMA)
        end = reader.latestOffset(reader.initialOffset())
        assert end["offsets"] == {"tenant%orders": {"broker-a": {"0": 3}}}
        reader.commit(end)
        assert consumer.committed(QUEUE) == 3
        assert consumer.current_queues(["%RETRY%tenant%audit"])["%RETRY%tenant%audit"] is not None
