"""Errors of first jobs end with what to do: forms of Kafka's, seconds for milliseconds, misspelt topics, types."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StringType, StructField, StructType, TimestampNTZType, VariantType

from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_core.servers.embedded.arguments import broker_ports
from pyrmq_spark import RocketMQDataSource, worker
from pyrmq_spark.positions import parse_assign, parse_end, parse_start, parse_time, parse_times
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.spark_errors import InvalidColumn, InvalidOffsets, RocketMQSparkError
from pyrmq_spark.write.columns import sink_schema

BODY = StructType([StructField("body", StringType())])


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, settings={"autoCreateTopicEnable": "false"}, topics={"orders": 2}) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("sorted", queues=2, broker="broker-b")
            admin.topics.set_order("sorted", {"broker-b": 2})
        yield cluster
        worker.close()


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_start, '{"orders": {"0": 23, "1": -2}}'),
        (parse_end, '{"orders": {"0": -1}}'),
        (parse_times, '{"orders": {"0": 1763720000000}}'),
        (parse_assign, '{"orders": [0, 1]}'),
    ],
)
def test_offsets_in_kafkas_form_are_told_about_the_level_of_brokers(parse: object, text: str) -> None:
    option = "assign" if parse is parse_assign else "startingOffsets"
    with pytest.raises(InvalidOffsets, match=r'a level for brokers is missing.*"orders": ."broker-a": '):
        parse(text, option)  # type: ignore[operator]


def test_seconds_are_no_milliseconds() -> None:
    for text in ("1763720000", "1000000000", "4102444799"):
        with pytest.raises(InvalidOffsets, match=r"are milliseconds of the year 1970; .* it is 2.*: append 000"):
            parse_time(text, "startingTimestamp")
        with pytest.raises(InvalidOffsets, match="append 000"):
            parse_times(f'{{"orders": {text}}}', "startingOffsetsByTimestamp")
    for text in ("0", "999999999", "1763720000000", "2026-11-21T09:30:00+01:00"):
        parse_time(text, "startingTimestamp")


def test_a_delay_of_no_bound_is_refused() -> None:
    options = {"nameServer": "127.0.0.1:1", "topic": "orders", "maxTriggerDelay": "5m"}
    with pytest.raises(RocketMQSparkError, match="maxTriggerDelay needs minOffsetsPerTrigger"):
        RocketMQDataSource(options).streamReader(BODY)
    RocketMQDataSource(options | {"minOffsetsPerTrigger": "10"}).streamReader(BODY)


def test_types_have_their_next_word() -> None:
    def schema(name: str, kind: object) -> StructType:
        return StructType([StructField("body", StringType()), StructField(name, kind)])  # type: ignore[arg-type]

    with pytest.raises(InvalidColumn, match="convert it by parse_json"):
        source_schema(StructType([StructField("body", VariantType())]))
    with pytest.raises(InvalidColumn, match="read it as timestamp, and convert it by cast"):
        source_schema(schema("storeTimestamp", TimestampNTZType()))
    with pytest.raises(InvalidColumn, match=r"write cast\(deliverAt as timestamp\)"):
        sink_schema(schema("deliverAt", TimestampNTZType()), "orders")
    with pytest.raises(InvalidColumn, match=r"write to_json\(value\) as body"):
        sink_schema(StructType([StructField("value", VariantType())]), "orders")


def test_overwrite_and_a_table_without_options_say_what_works_in_sql() -> None:
    with pytest.raises(RocketMQSparkError, match="in SQL INSERT INTO"):
        RocketMQDataSource({"nameServer": "127.0.0.1:1", "topic": "orders"}).writer(BODY, overwrite=True)
    with pytest.raises(RocketMQSparkError, match=r"INSERT INTO orders WITH \(...\) in the place of CREATE TABLE"):
        RocketMQDataSource({})


def test_a_misspelt_topic_has_the_nearest_one(cluster: EmbeddedCluster) -> None:
    options = {"nameServer": cluster.nameserver, "topic": "ordres", "sendTimeoutMs": "3600000"}
    with pytest.raises(RocketMQSparkError, match=r"RMQ_TOPIC_NOT_FOUND.*did you mean orders\?"):
        RocketMQDataSource(options).reader(BODY).partitions()


def test_a_topic_whose_broker_is_away_is_not_missing(cluster: EmbeddedCluster) -> None:
    """Its order configuration names the broker, which no route does: it is waited for, and made nowhere else."""
    cluster.stop("broker-b")
    try:
        options = {"nameServer": cluster.nameserver, "topic": "sorted", "sendTimeoutMs": "1", "pullTimeoutMs": "1"}
        read = RocketMQDataSource(options).reader(BODY)
        with pytest.raises(RocketMQSparkError, match=r"RMQ_BROKER_UNAVAILABLE.*topic sorted is on broker-b.*start it"):
            read.partitions()
        with pytest.raises(RocketMQSparkError, match=r"RMQ_BROKER_UNAVAILABLE.*topic sorted is on broker-b.*start it"):
            RocketMQDataSource(options | {"createTopic": "normal"}).writer(BODY, overwrite=False)
    finally:
        cluster.start("broker-b")
    with Admin(nameserver=cluster.nameserver) as admin:
        assert [broker.broker_name for broker in admin.route("sorted").broker_datas] == ["broker-b"]


def test_brokers_have_the_ports_that_are_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        first = free.getsockname()[1]
    if first > 65000:
        pytest.skip("a port with no room above it")
    assert broker_ports(first, 3) == [first, first + 10, first + 20]
    assert broker_ports(0, 2) == [0, 0]
    with EmbeddedCluster(brokers=1, broker_port=first) as cluster:
        assert cluster.brokers == {"broker-a": f"127.0.0.1:{first}"}
