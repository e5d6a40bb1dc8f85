"""Losses while a task reads its range: it skips no more than is gone, and believes only a master's answer."""

from collections.abc import Iterator

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.embedded import PASS, Control, Pass
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer
from pyrmq_core.protocol.routes.route import BrokerData, QueueData, TopicRouteData
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.read.range_planner import QueueRange, RangePartition
from pyrmq_spark.source import RocketMQReader
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.stream.stream_offset import StreamOffset
from tests.support.spark import wait_readable
from tests.support.stage import Stage, staged
from tests.support.stream_queries import Query

SLAVE_HAS = 64
A0 = MessageQueue("orders", "broker-a", 0)
MESSAGES = 90
SHORT_MS = "300"  # the pullTimeoutMs of reads that wait in vain
BRIEFLY = {"pullTimeoutMs": "2000"}  # of reads that wait so long for what is gone, and read on behind it
SCHEMA = source_schema(StructType([StructField("queueOffset", LongType()), StructField("body", StringType())]))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("orders", queues=1)
        with Producer("setup", nameserver=cluster.nameserver) as producer:
            producer.send_batch([Message("orders", f"row {n}".encode()) for n in range(MESSAGES)], queue=A0)
        wait_readable(cluster.nameserver, "orders", MESSAGES)
        yield cluster
        worker.close()


def offsets(cluster: EmbeddedCluster | str, **options: str) -> list[int]:
    """Returns the offsets that a task yields, of a cluster or a NameServer's address."""
    nameserver = cluster if isinstance(cluster, str) else cluster.nameserver
    settings = read_source({"topic": "orders"} | options)
    reader = RocketMQReader(ConnectionOptions(name_server=nameserver), settings, SCHEMA)
    batches = reader.read(RangePartition(QueueRange(A0, 0, MESSAGES)))
    return [row["queueOffset"] for batch in batches for row in batch.to_pylist()]


def answering(
    cluster: EmbeddedCluster, first: int, last: int, answer: PullAnswer, *, times: int | None = None
) -> Control:
    """Answers pulls of the offsets from `first` up to `last` with this; a pull from before ends at `first`."""

    async def answered(request: Command, peer: Peer) -> Command | Pass:
        offset = int(request.ext["queueOffset"])
        if offset < first:
            request.ext["maxMsgNums"] = str(min(int(request.ext["maxMsgNums"]), first - offset))  # type: ignore[index]
        return answer.to_command() if first <= offset < last else PASS

    return cluster.control(RequestCode.PULL_MESSAGE, answered, times=times)


def answer(code: int, next_offset: int, least: int = 0, most: int = MESSAGES) -> PullAnswer:
    return PullAnswer(code, next_begin_offset=next_offset, min_offset=least, max_offset=most)


# --- A log file that is removed: MESSAGE_WAS_REMOVING is 20 with the offset behind it, OFFSET_FOUND_NULL is 19.


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (0, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (40, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (40, ResponseCode.PULL_NOT_FOUND),
    ],
)
def test_what_lies_behind_a_removed_file_is_read(
    cluster: EmbeddedCluster, first: int, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    control = answering(cluster, first, first + 10, answer(code, first + 10))
    try:
        assert offsets(cluster, failOnDataLoss="false", **BRIEFLY) == [*range(first), *range(first + 10, MESSAGES)]
        assert f"orders/broker-a/0: offsets {first} to {first + 10} are skipped" in caplog.text
        with pytest.raises(RocketMQSparkError, match=rf"\[RMQ_DATA_LOSS\] .*offsets {first} to {first + 10} of orders"):
            offsets(cluster, **BRIEFLY)
    finally:
        control.remove()


def test_a_minimum_that_moved_further_than_the_removed_file_counts(cluster: EmbeddedCluster) -> None:
    control = answering(cluster, 0, 30, answer(ResponseCode.PULL_RETRY_IMMEDIATELY, 10, least=30))
    try:
        assert offsets(cluster, failOnDataLoss="false") == list(range(30, MESSAGES))
    finally:
        control.remove()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_offset_that_is_moved_once_though_it_is_kept_loses_nothing(cluster: EmbeddedCluster, fail: str) -> None:
    """A broker of 5.x does so when the group's offset is reset: once, for one pull, whatever its offset."""
    answering(cluster, 0, MESSAGES, answer(ResponseCode.PULL_OFFSET_MOVED, 70), times=1)
    assert offsets(cluster, failOnDataLoss=fail) == list(range(MESSAGES))


def test_an_offset_that_stays_moved_is_skipped_as_far_as_it_is_moved(cluster: EmbeddedCluster) -> None:
    control = answering(cluster, 20, 25, answer(ResponseCode.PULL_OFFSET_MOVED, 25))
    try:
        assert offsets(cluster, failOnDataLoss="false", **BRIEFLY) == [*range(20), *range(25, MESSAGES)]
    finally:
        control.remove()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_queue_that_gives_nothing_of_what_it_keeps_is_damaged(cluster: EmbeddedCluster, fail: str) -> None:
    control = answering(cluster, 20, MESSAGES, answer(ResponseCode.PULL_NOT_FOUND, 20))
    try:
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BAD_RECORD\] .* at 20 with next offset 20, which"):
            offsets(cluster, failOnDataLoss=fail, pullTimeoutMs=SHORT_MS)
    finally:
        control.remove()


# --- A slave that lags behind while its master is away


@pytest.fixture
def slave() -> Iterator[Stage]:
    """A slave that has 64 of the 90 rows that its master acknowledged."""
    opened = HeldContext(portal(), staged("broker-a"))
    stage = opened.value
    for number in range(SLAVE_HAS):
        stage.stores["broker-a"].put("orders", 0, b"row %d" % number)
    only = BrokerData("DefaultCluster", "broker-a", {1: stage.addresses["broker-a"]})
    stage.table.brokers = {"broker-a": only}
    stage.table.routes["orders"] = TopicRouteData((QueueData("broker-a", 1, 1, 6),), (only,))
    yield stage
    worker.close()
    opened.close()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_slaves_missing_tail_is_no_loss(slave: Stage, fail: str) -> None:
    with pytest.raises(RocketMQSparkError) as error:
        offsets(slave.nameserver.address, failOnDataLoss=fail, pullTimeoutMs=SHORT_MS)
    assert str(error.value).startswith("[RMQ_BROKER_UNAVAILABLE] orders/broker-a/0: waited 0.3 s in vain, and nothing")
    assert "broker-a has no master" in str(error.value)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_stream_goes_on_with_what_the_slave_has_and_takes_none_of_its_bounds_for_a_loss(
    slave: Stage, fail: str
) -> None:
    store = slave.stores["broker-a"]
    query = Query(slave.nameserver.address, topic="orders", startingOffsets="earliest", failOnDataLoss=fail)
    assert query.batch() == [f"row {number}" for number in range(SLAVE_HAS)]
    query.offset = StreamOffset({A0: 80}).to_json()  # the master had more
    assert query.batch() == []
    query.offset = StreamOffset({A0: 20}).to_json()
    store.first_offset["orders", 0], store.queues["orders", 0] = 40, store.queues["orders", 0][40:]
    query.restart(pullTimeoutMs=SHORT_MS)
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\] .*broker-a has no master"):
        query.batch()
    assert query.start()["offsets"]["orders"]["broker-a"]["0"] == 20


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_that_names_offsets_beyond_the_slave_is_not_cut(slave: Stage, fail: str) -> None:
    connection = ConnectionOptions(name_server=slave.nameserver.address)
    for option, offset in (("endingOffsets", 90), ("startingOffsets", 80)):
        named = {option: f'{{"orders":{{"broker-a":{{"0":{offset}}}}}}}'}
        settings = read_source({"topic": "orders", "failOnDataLoss": fail, "pullTimeoutMs": SHORT_MS, **named})
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\] .*orders/broker-a/0 .*no master"):
            RocketMQReader(connection, settings, SCHEMA).partitions()


def test_a_batch_says_that_it_ends_where_the_slave_does(slave: Stage, caplog: pytest.LogCaptureFixture) -> None:
    connection = ConnectionOptions(name_server=slave.nameserver.address)
    (partition,) = RocketMQReader(connection, read_source({"topic": "orders"}), SCHEMA).partitions()
    assert isinstance(partition, RangePartition)
    assert partition.ranges == (QueueRange(A0, 0, SLAVE_HAS),)
    assert "broker-a has no master: what its slave has of orders is read" in caplog.text
