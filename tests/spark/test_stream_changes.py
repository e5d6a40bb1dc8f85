"""Streams and batches over topics, permissions and NameServers that change: existing messages are read once."""

import json
from collections.abc import Iterator

import pytest

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import Permission
from pyrmq_core.network import CutConnection, Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.routes.route import BrokerData
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.read.range_planner import QueueRange, RangePartition
from pyrmq_spark.source import RocketMQReader
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.stream.stream_offset import StreamOffset
from tests.support.scripted import route_of
from tests.support.stage import Stage, staged
from tests.support.stream_queries import SCHEMA, Query, numbers, send, wait_end


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster
        worker.close()


def planned(nameserver: str, **options: str) -> list[QueueRange]:
    """Returns the ranges of a batch."""
    reader = RocketMQReader(ConnectionOptions(name_server=nameserver), read_source(options), source_schema(SCHEMA))
    return [
        offset_range for part in reader.partitions() if isinstance(part, RangePartition) for offset_range in part.ranges
    ]


# --- Queues that become shorter


def test_a_queue_that_lost_its_newest_message_is_not_read_again(
    cluster: EmbeddedCluster, producer: Producer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, cluster, topic, 0, 5)
    query = Query(cluster, topic=topic, startingOffsets="earliest", failOnDataLoss="false")
    query.offset = StreamOffset(
        {MessageQueue(topic, "broker-a", 0): 6, MessageQueue(topic, "broker-b", 0): 0}
    ).to_json()
    assert query.batch() == []
    assert f"skipped, since failOnDataLoss=false: {topic}/broker-a/0 was read up to offset 6" in caplog.text
    assert "it is read on from offset 5" in caplog.text
    send(producer, cluster, topic, 5, 8)
    assert query.batch() == numbers(5, 8)


# --- A permission that is taken


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_may_not_be_read_for_a_while_is_not_gone(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str, fail: str
) -> None:
    send(producer, cluster, topic, 0, 5)
    query = Query(cluster, topic=topic, startingOffsets="earliest", failOnDataLoss=fail)
    assert query.batch() == numbers(0, 5)
    admin.create_topic(topic, queues=1, perm=Permission.WRITE)
    reached = query.start()
    assert query.batch() == []  # nothing waits there
    assert query.start() == reached
    send(producer, cluster, topic, 5, 8)
    with pytest.raises(
        RocketMQSparkError, match=rf"\[RMQ_NOT_READABLE\] .*{topic}/broker-a/0 cannot be read: the topic"
    ):
        query.batch()
    admin.create_topic(topic, queues=1)
    query.restart()
    assert query.batch() == numbers(5, 8)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_task_whose_topic_may_not_be_read_any_more_skips_nothing(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str, fail: str
) -> None:
    send(producer, cluster, topic, 0, 5)
    query = Query(cluster, topic=topic, startingOffsets="earliest", failOnDataLoss=fail)
    start, end = query.start(), query.plan()
    admin.create_topic(topic, queues=1, perm=Permission.WRITE)
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_REFUSED\] .*NO_PERMISSION"):
        query.run(start, end)
    admin.create_topic(topic, queues=1)
    assert query.run(start, end) == numbers(0, 5)


def test_a_batch_of_a_topic_that_may_not_be_read_says_so(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str
) -> None:
    send(producer, cluster, topic, 0, 5)
    admin.create_topic(topic, queues=1, perm=Permission.WRITE)
    chosen = ({"topic": topic}, {"topicPattern": topic}, {"assign": json.dumps({topic: {"broker-a": [0]}})})
    for selection in chosen:
        with pytest.raises(RocketMQSparkError, match=rf"\[RMQ_NOT_READABLE\] .*{topic}/broker-a/0.*READ permission"):
            planned(cluster.nameserver, **selection)
    query = Query(cluster, topic=topic, startingOffsets="earliest")
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_NOT_READABLE\]"):
        query.batch()


# --- A broker that is not registered


@pytest.fixture
def stage() -> Iterator[Stage]:
    """broker-a with ten rows of `orders`; broker-b is away."""
    opened = HeldContext(portal(), staged("broker-a", "broker-b"))
    stage = opened.value
    for number in range(10):
        stage.stores["broker-a"].put("orders", 0, b"%d" % number)
    stage.topic("orders", queues=1, brokers=["broker-a"])
    stage.table.brokers = {"broker-a": BrokerData("DefaultCluster", "broker-a", {0: stage.addresses["broker-a"]})}
    yield stage
    worker.close()
    opened.close()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_waits_for_a_broker_of_the_order_configuration(stage: Stage, fail: str) -> None:
    stage.table.kv = {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:1;broker-b:1"}}
    options = {"topic": "orders", "failOnDataLoss": fail, "pullTimeoutMs": "300"}
    with pytest.raises(
        RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\] .*waited 0.3 s.*broker-b is not registered"
    ):
        planned(stage.nameserver.address, **options)
    query = Query(stage.nameserver.address, **options)
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\] .*broker-b is not registered"):
        query.batch()
    stage.table.brokers["broker-b"] = BrokerData("DefaultCluster", "broker-b", {0: stage.addresses["broker-b"]})  # type: ignore[index]
    assert planned(stage.nameserver.address, **options | {"pullTimeoutMs": "20000"}) == [
        QueueRange(MessageQueue("orders", "broker-a", 0), 0, 10)
    ]


def test_a_batch_waits_for_a_broker_that_another_nameserver_knows(stage: Stage) -> None:
    """Each NameServer knows one broker, in either order."""
    other = HeldContext(portal(), staged())
    try:
        table, address = other.value.table, stage.addresses["broker-b"]
        table.routes["orders"] = route_of({"broker-b": address}, queues=1)
        table.brokers = {"broker-b": BrokerData("DefaultCluster", "broker-b", {0: address})}
        both = f"{stage.nameserver.address};{other.value.nameserver.address}"
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\] .*broker-[ab] is not registered"):
            planned(both, topic="orders", pullTimeoutMs="300")
    finally:
        worker.close()
        other.close()


# --- A start that cannot be resolved any more


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_0_that_failed_is_read_as_planned_though_the_topic_has_grown(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str, fail: str
) -> None:
    """The options name the first run's queues; Spark requests the start anew, and keeps nothing of batch 0."""
    send(producer, cluster, topic, 0, 5)
    named = json.dumps({topic: {"broker-a": {"0": 2}, "broker-b": {"0": -2}}})
    query = Query(cluster, topic=topic, startingOffsets=named, failOnDataLoss=fail)
    planned_end = query.plan()
    admin.create_topic(topic, queues=2)
    query.restart()
    assert query.run(query.start(), planned_end) == numbers(2, 5)
    newest = MessageQueue(topic, "broker-a", 1)
    sent = producer.send_batch([Message(topic, b"new")], queue=newest)
    wait_end(cluster, newest, sent[-1].queue_offset + 1)
    assert query.batch() == ["new"]


def test_a_new_query_whose_start_cannot_be_resolved_plans_nothing(cluster: EmbeddedCluster, topic: str) -> None:
    query = Query(cluster, topic=topic, startingOffsets=json.dumps({topic: {"broker-a": {"0": 2}}}))
    for _ in range(2):
        with pytest.raises(
            RocketMQSparkError, match=rf"\[RMQ_INVALID_OFFSETS\] the stream's start: .*{topic}/broker-b"
        ):
            query.batch()


# --- A NameServer that is away


def test_a_stream_goes_on_while_only_the_nameserver_is_away(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    store = stage.stores["broker-a"]
    query = Query(stage.nameserver.address, topic="orders", startingOffsets="earliest", pullTimeoutMs=5000)
    assert query.batch() == numbers(0, 10)
    portal().run(stage.nameserver.stop)
    for number in range(10, 13):
        store.put("orders", 0, b"%d" % number)
        assert query.batch() == [str(number)]
    assert caplog.text.count("going on with the 1 queues that are known") == 1
    portal().run(stage.nameserver.start)
    stage.topic("orders", queues=2, brokers=["broker-a"])
    store.put("orders", 1, b"new")
    assert query.batch() == ["new"]
    portal().run(stage.nameserver.stop)
    query.restart(pullTimeoutMs=300)  # a new process knows no queue
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\] .*no NameServer answered"):
        query.batch()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_nothing_counts_as_gone_while_no_nameserver_says_so(stage: Stage, fail: str) -> None:
    stage.topic("orders", queues=2, brokers=["broker-a"])
    stage.stores["broker-a"].put("orders", 1, b"other")
    query = Query(stage.nameserver.address, topic="orders", startingOffsets="earliest", failOnDataLoss=fail)
    assert sorted(query.batch()) == sorted([*numbers(0, 10), "other"])
    reached = query.start()
    stage.topic("orders", queues=1, brokers=["broker-a"])
    seen = stage.nameserver

    def away(request: Command, peer: Peer) -> None:
        raise CutConnection

    for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO):
        seen.always(code, away)
    assert query.batch() == []
    assert query.start() == reached
