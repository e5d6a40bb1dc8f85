"""The type of a topic that a write creates: by the option, else by the columns; brokers of 4.9 keep none."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from pyrmq_core import InvalidArgument, NoRoute
from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_core.protocol.framing.command import refusal
from pyrmq_core.testing import Command, Peer, RequestCode
from pyrmq_spark import RocketMQDataSource, worker
from pyrmq_spark.options import read_connection, read_sink
from pyrmq_spark.spark_errors import InvalidOption
from pyrmq_spark.write.columns import sink_schema
from pyrmq_spark.write.create_topic import create_topic
from pyrmq_spark.write.queue_assignment import QueueAssignment

COLUMNS = {
    "shardingKey": StringType(),
    "delayLevel": IntegerType(),
    "deliverAt": TimestampType(),
    "priority": IntegerType(),
    "liteTopic": StringType(),
}


@pytest.fixture(autouse=True)
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster
        worker.close()


def types(cluster: EmbeddedCluster, topic: str) -> list[str | None]:
    with Admin(nameserver=cluster.nameserver) as admin:
        return [config.attributes.get("message.type") for config in admin.topic_config(topic).values()]


def create(cluster: EmbeddedCluster, *columns: str, **options: str) -> None:
    """Creates the topic `made` as a write of these columns does."""
    fields = [StructField("body", StringType()), *(StructField(name, COLUMNS[name]) for name in columns)]
    kind = sink_schema(StructType(fields), "made").message_type
    connection = read_connection({"nameServer": cluster.nameserver}, {})
    create_topic(connection, read_sink({"createTopic": "normal", **options}), "made", kind)


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ((), {}, None),
        (("shardingKey",), {}, "FIFO"),
        (("delayLevel",), {}, "DELAY"),
        (("deliverAt",), {}, "DELAY"),
        (("shardingKey", "deliverAt"), {}, "DELAY"),
        (("priority",), {}, "PRIORITY"),
        (("priority", "shardingKey"), {}, "FIFO"),
        ((), {"messageType": "priority"}, "PRIORITY"),
        (("liteTopic",), {}, "LITE"),
        ((), {"messageType": "normal"}, "NORMAL"),
        (("shardingKey",), {"messageType": "Transaction"}, "TRANSACTION"),
        (("shardingKey",), {"createTopic": "batch"}, None),
    ],
)
def test_the_type_follows_the_columns_unless_it_is_set(
    cluster: EmbeddedCluster, columns: tuple[str, ...], options: dict[str, str], expected: str | None
) -> None:
    create(cluster, *columns, **options)
    assert types(cluster, "made") == [expected]


def test_a_topic_of_the_column_gets_it_too(cluster: EmbeddedCluster) -> None:
    connection = read_connection({"nameServer": cluster.nameserver}, {})
    options = read_sink({"createTopic": "normal"})
    placing = QueueAssignment(worker.producer(connection, options), 0, connection, options, "delay")
    due = pa.array([datetime(2030, 1, 1, tzinfo=UTC)])
    placing.placed("named", pa.record_batch({"body": pa.array([b"x"]), "deliverAt": due}))
    assert types(cluster, "named") == ["DELAY"]


async def unknown(_request: Command, _peer: Peer) -> Command:
    return refusal(3, "request type not supported")


def test_brokers_before_5_make_it_without_a_type_that_was_not_set(cluster: EmbeddedCluster) -> None:
    cluster.control(RequestCode.GET_TOPIC_CONFIG, unknown, server="broker-a")
    with pytest.raises(InvalidArgument, match=r"older than 5.0, whose topics have no attributes \(message.type=FIFO\)"):
        create(cluster, messageType="fifo")
    create(cluster, "shardingKey")
    with Admin(nameserver=cluster.nameserver) as admin:
        assert admin.route("made").queue_datas


def test_a_type_without_a_creation_is_refused() -> None:
    for options in ({}, {"createTopic": "batch"}):
        with pytest.raises(InvalidOption, match="createTopic=normal makes: set that, too"):
            read_sink({"messageType": "fifo", **options})


def test_the_end_of_a_streams_batch_looks_up_no_topic(cluster: EmbeddedCluster) -> None:
    """Its writer is made from a copy of the source. A writer for the next batch, from a new source, makes the topic."""
    schema = StructType([StructField("body", StringType())])
    options = {"nameServer": cluster.nameserver, "topic": "made", "createTopic": "normal"}
    ending: RocketMQDataSource = pickle.loads(pickle.dumps(RocketMQDataSource(options)))
    ending.streamWriter(schema, overwrite=False).commit([], batchId=0)
    with Admin(nameserver=cluster.nameserver) as admin, pytest.raises(NoRoute):
        admin.route("made")
    RocketMQDataSource(options).streamWriter(schema, overwrite=False)
    assert types(cluster, "made") == [None]
