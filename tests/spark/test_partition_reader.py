"""Ranges and rows of a batch read, in this process, against our own brokers."""

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from pyrmq_core import Message, MessageQueue, OffsetRange
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.errors import DataLost
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer
from pyrmq_core.protocol.requests.nameserver.topic_lists import TopicList
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.read.queue_selection import chosen_queues, matching, plan_batch
from pyrmq_spark.read.range_planner import QueueRange, RangePartition
from pyrmq_spark.source import RocketMQDataSource, RocketMQReader
from pyrmq_spark.spark_errors import InvalidOffsets, InvalidOption, RocketMQSparkError
from tests.support.spark import wait_readable

OFFSETS_AND_BODIES = StructType([StructField("queueOffset", LongType()), StructField("body", StringType())])
A0, B0 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)
MESSAGES = 500
LATE = "2999-01-01T00:00:00Z"
THREE = '{"orders":{"broker-a":{"0":3},"broker-b":{"0":0}}}'


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers with one queue of `orders` each, 500 messages in broker-a's; a topic `audit` without messages."""
    with EmbeddedCluster(brokers=2) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("orders", queues=1)
            admin.create_topic("audit", queues=1)
        with Producer("setup", nameserver=cluster.nameserver) as producer:
            numbers = range(MESSAGES)
            producer.send_batch([Message("orders", f"row {n}".encode(), tags=f"t{n % 2}") for n in numbers], queue=A0)
        wait_readable(cluster.nameserver, "orders", MESSAGES)
        yield cluster
        worker.close()


def planned(cluster: EmbeddedCluster, **options: Any) -> list[QueueRange]:
    texts = {"topic": "orders"} | {name: str(value) for name, value in options.items() if value is not None}
    if options.get("topic", "") is None:
        del texts["topic"]
    connection = ConnectionOptions(name_server=cluster.nameserver)
    read = read_source(texts)
    return plan_batch(worker.consumer(connection, read.consumer_group or "g"), read)


def reader(cluster: EmbeddedCluster, **options: str) -> RocketMQReader:
    return RocketMQReader(
        ConnectionOptions(name_server=cluster.nameserver),
        read_source({"topic": "orders"} | options),
        source_schema(OFFSETS_AND_BODIES),
    )


def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, str]]:
    return [(row["queueOffset"], row["body"]) for batch in batches for row in batch.to_pylist()]


# --- Ranges


def test_a_read_covers_what_there_is(cluster: EmbeddedCluster) -> None:
    assert planned(cluster) == [QueueRange(A0, 0, MESSAGES)]


def test_several_topics_and_none_without_messages(cluster: EmbeddedCluster) -> None:
    assert planned(cluster, topic="audit, orders") == [QueueRange(A0, 0, MESSAGES)]
    assert planned(cluster, topic="audit") == []


def test_a_pattern_matches_whole_names_of_users_topics(cluster: EmbeddedCluster) -> None:
    assert planned(cluster, topic=None, topicPattern="ord.*") == [QueueRange(A0, 0, MESSAGES)]
    assert planned(cluster, topic=None, topicPattern="ord") == []
    connection = ConnectionOptions(name_server=cluster.nameserver)
    everything, _ = chosen_queues(worker.consumer(connection, "g"), read_source({"topicPattern": ".*"}))
    assert {queue.topic for queue in everything} == {"orders", "audit"}


def test_a_topic_that_goes_once_a_pattern_has_found_it_is_none_of_its_topics(cluster: EmbeddedCluster) -> None:
    async def listed_late(request: Command, peer: Peer) -> Command:
        return TopicList(("orders", "orders_gone")).to_command()

    control = cluster.control(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, listed_late, server="nameserver")
    try:
        assert planned(cluster, topic=None, topicPattern="ord.*") == [QueueRange(A0, 0, MESSAGES)]
    finally:
        control.remove()


def test_rocketmqs_own_topics_never_match() -> None:
    own = ["TBW102", "rmq_sys_x", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX"]
    assert matching(".*", [*own, "b", "a"]) == ["a", "b"]


def test_assigned_queues_alone_are_read(cluster: EmbeddedCluster) -> None:
    assert planned(cluster, topic=None, assign='{"orders":{"broker-b":[0]}}') == []
    assert planned(cluster, topic=None, assign='{"orders":{"broker-a":[0]}}') == [QueueRange(A0, 0, MESSAGES)]
    with pytest.raises(InvalidOption, match="orders/broker-c/1, which no broker has; there are orders/broker-a/0"):
        planned(cluster, topic=None, assign='{"orders":{"broker-c":[1]}}')


def test_offsets_of_both_ends(cluster: EmbeddedCluster) -> None:
    start, end = {"broker-a": {"0": 7}, "broker-b": {"0": -2}}, {"broker-a": {"0": 9}, "broker-b": {"0": -1}}
    assert planned(
        cluster, startingOffsets=json.dumps({"orders": start}), endingOffsets=json.dumps({"orders": end})
    ) == [QueueRange(A0, 7, 9)]


def test_what_the_group_has_committed(cluster: EmbeddedCluster) -> None:
    with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
        consumer.pull(A0, 0)
        consumer.commit(A0, 33)
    assert planned(cluster, startingOffsets="committed", consumerGroup="readers") == [QueueRange(A0, 33, MESSAGES)]


def test_times_of_both_ends(cluster: EmbeddedCluster) -> None:
    assert planned(cluster, startingTimestamp=0) == [QueueRange(A0, 0, MESSAGES)]
    assert planned(cluster, endingTimestamp=0) == []
    assert planned(cluster, endingTimestamp="2999-01-01T00:00:00Z") == [QueueRange(A0, 0, MESSAGES)]
    assert planned(cluster, startingTimestamp="2999-01-01T00:00Z", startingOffsetsByTimestampStrategy="latest") == []


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": LATE, "endingTimestamp": "2999-01-02T00:00:00Z"},
        {"startingTimestamp": LATE, "endingOffsets": "latest"},
        {"startingTimestamp": LATE, "endingOffsets": THREE},
        {"startingOffsets": THREE, "endingTimestamp": 0},
        {
            "startingOffsetsByTimestamp": '{"orders":32472144000000}',
            "endingOffsetsByTimestamp": '{"orders":32472144000000}',
        },
    ],
    ids=lambda options: " ".join(options),
)
def test_between_two_ends_a_queue_without_messages_is_empty(cluster: EmbeddedCluster, options: dict[str, Any]) -> None:
    assert planned(cluster, **options) == []


def test_a_start_by_time_alone_says_that_no_message_is_as_young(cluster: EmbeddedCluster) -> None:
    with pytest.raises(InvalidOffsets, match="has no message stored at or after 2999-01-01"):
        planned(cluster, startingTimestamp=LATE)


def test_expired_offsets_fail_or_are_passed_over(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    start = json.dumps({"orders": {"broker-a": {"0": MESSAGES + 50}, "broker-b": {"0": 0}}})
    with pytest.raises(DataLost, match="the start of orders/broker-a/0 is offset 550, but its broker keeps 0 to 500"):
        planned(cluster, startingOffsets=start)
    assert planned(cluster, startingOffsets=start, failOnDataLoss="false") == []
    assert "offset 550" in caplog.text


# --- Rows


def test_a_range_gives_its_rows_in_order(cluster: EmbeddedCluster) -> None:
    given = rows(reader(cluster).read(RangePartition(QueueRange(A0, 10, 200))))
    assert given == [(number, f"row {number}") for number in range(10, 200)]


def test_a_reader_travels_with_nothing_but_its_settings(cluster: EmbeddedCluster) -> None:
    sent = pickle.loads(pickle.dumps((reader(cluster), RangePartition(QueueRange(A0, 0, 3)))))
    assert len(rows(sent[0].read(sent[1]))) == 3


def test_a_source_travels_with_its_connection(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """NAMESRV_ADDR is read once, on the driver."""
    monkeypatch.setenv("NAMESRV_ADDR", cluster.nameserver)
    source = RocketMQDataSource({"topic": "orders"})
    monkeypatch.delenv("NAMESRV_ADDR")
    travelled = pickle.loads(pickle.dumps(source)).reader(OFFSETS_AND_BODIES)
    (partition,) = travelled.partitions()
    assert len(rows(travelled.read(partition))) == MESSAGES


def test_only_rows_with_the_tags_are_given(cluster: EmbeddedCluster) -> None:
    given = rows(reader(cluster, tags="t1").read(RangePartition(QueueRange(A0, 0, 100))))
    assert [offset for offset, _ in given] == list(range(1, 100, 2))


def test_a_range_whose_rows_are_all_filtered_ends(cluster: EmbeddedCluster) -> None:
    assert rows(reader(cluster, tags="nobody").read(RangePartition(QueueRange(A0, 0, MESSAGES)))) == []


def test_a_task_that_is_cut_short_leaves_no_pull_behind(cluster: EmbeddedCluster) -> None:
    batches = reader(cluster, pullBatchSize="1").read(RangePartition(QueueRange(A0, 0, MESSAGES)))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(rows(reader(cluster).read(RangePartition(QueueRange(A0, 0, MESSAGES))))) == MESSAGES


def test_messages_that_expire_while_they_are_read(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    async def expired(request: Command, peer: Peer) -> Command:
        return PullAnswer(
            ResponseCode.PULL_OFFSET_MOVED, next_begin_offset=300, min_offset=300, max_offset=MESSAGES
        ).to_command()

    expected = RangePartition(QueueRange(A0, 100, 400))
    cluster.control(RequestCode.PULL_MESSAGE, expired, times=1)
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] orders/broker-a/0: offsets 100 to 400 .* 300 to"):
        rows(reader(cluster).read(expected))
    cluster.control(RequestCode.PULL_MESSAGE, expired, times=1)
    given = rows(reader(cluster, failOnDataLoss="false").read(expected))
    assert [offset for offset, _ in given] == list(range(300, 400))
    assert "orders/broker-a/0: offsets 100 to 300 are skipped" in caplog.text


def test_a_topic_made_anew_has_nothing_of_the_range(cluster: EmbeddedCluster) -> None:
    async def shorter(request: Command, peer: Peer) -> Command:
        return PullAnswer(ResponseCode.PULL_OFFSET_MOVED, next_begin_offset=5, min_offset=0, max_offset=5).to_command()

    control = cluster.control(RequestCode.PULL_MESSAGE, shorter)
    try:
        read = reader(cluster, failOnDataLoss="false").read(RangePartition(QueueRange(A0, 100, 400)))
        assert rows(read) == []
    finally:
        control.remove()


# --- Several ranges in one task


@pytest.fixture(scope="module")
def many(cluster: EmbeddedCluster) -> list[MessageQueue]:
    """Topic `many`: 20 queues on each broker, seven messages in each."""
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("many", queues=20)
    queues = [MessageQueue("many", broker, number) for broker in ("broker-a", "broker-b") for number in range(20)]
    with Producer("setup", nameserver=cluster.nameserver) as producer:
        for queue in queues:
            producer.send_batch([Message("many", f"{queue} {n}".encode()) for n in range(7)], queue=queue)
    wait_readable(cluster.nameserver, "many", 280)
    return queues


def test_a_small_read_is_one_task(cluster: EmbeddedCluster, many: list[MessageQueue]) -> None:
    """Its rows come by queue and offset, in few batches, and every column is right in every row."""
    schema = StructType([StructField(name, StringType()) for name in ("brokerName", "topic")])
    schema = schema.add("queueId", IntegerType()).add("queueOffset", LongType()).add("body", StringType())
    source = RocketMQReader(
        ConnectionOptions(name_server=cluster.nameserver), read_source({"topic": "many"}), source_schema(schema)
    )
    parts = source.partitions()
    assert [len(part.ranges) for part in parts if isinstance(part, RangePartition)] == [32, 8]
    batches = [batch for part in parts for batch in source.read(part)]
    assert len(batches) == 2
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == [
        (queue.broker_name, "many", queue.queue_id, n, f"{queue} {n}") for queue in many for n in range(7)
    ]


def test_more_tasks_if_they_are_wished_for(cluster: EmbeddedCluster, many: list[MessageQueue]) -> None:
    assert len(reader(cluster, topic="many", minPartitions="40").partitions()) == 40
    assert len(reader(cluster, topic="many", maxRecordsPerPartition="70").partitions()) == 4
    assert len(reader(cluster, topic="many", maxRecordsPerPartition="3").partitions()) == 120


def test_a_size_that_cannot_be_requested_is_not_missed(cluster: EmbeddedCluster, many: list[MessageQueue]) -> None:
    async def refused(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.NO_PERMISSION, "no pulls")

    control = cluster.control(RequestCode.PULL_MESSAGE, refused)
    try:
        assert len(reader(cluster, topic="many").partitions()) == 2
    finally:
        control.remove()


def test_a_loss_in_one_range_passes_over_no_other(
    cluster: EmbeddedCluster, many: list[MessageQueue], caplog: pytest.LogCaptureFixture
) -> None:
    async def expired(request: Command, peer: Peer) -> Command | Pass:
        if request.ext["queueId"] != "3" or int(request.ext["queueOffset"]) >= 5:
            return PASS
        return PullAnswer(ResponseCode.PULL_OFFSET_MOVED, next_begin_offset=5, min_offset=5, max_offset=7).to_command()

    ranges = RangePartition(*(QueueRange(queue, 0, 7) for queue in many[:10]))
    control = cluster.control(RequestCode.PULL_MESSAGE, expired)
    try:
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] many/broker-a/3: "):
            rows(reader(cluster).read(ranges))
        read = rows(reader(cluster, failOnDataLoss="false").read(ranges))
    finally:
        control.remove()
    assert read == [(n, f"{queue} {n}") for queue in many[:10] for n in range(5 if queue.queue_id == 3 else 0, 7)]
    assert "many/broker-a/3: offsets 0 to 5 are skipped" in caplog.text


def test_a_broker_that_is_down_for_one_range_is_waited_for(
    cluster: EmbeddedCluster, many: list[MessageQueue], caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of the ranges before it are not read twice, and the range is named if the wait is in vain."""

    async def busy(request: Command, peer: Peer) -> Command | Pass:
        is_it = request.ext["queueId"] == "4"
        return refusal(ResponseCode.SYSTEM_BUSY, "down") if is_it else PASS

    ranges = RangePartition(*(QueueRange(queue, 0, 7) for queue in many[:10]))
    expected = [(n, f"{queue} {n}") for queue in many[:10] for n in range(7)]
    control = cluster.control(RequestCode.PULL_MESSAGE, busy, times=40)
    try:
        assert rows(reader(cluster).read(ranges)) == expected
        forever = cluster.control(RequestCode.PULL_MESSAGE, busy)
        with pytest.raises(RocketMQSparkError, match="many/broker-a/4"):
            rows(reader(cluster, pullTimeoutMs="300").read(ranges))
        forever.remove()
    finally:
        control.remove()


def test_a_task_of_many_ranges_may_be_cut_short(cluster: EmbeddedCluster, many: list[MessageQueue]) -> None:
    batches = reader(cluster).read(RangePartition(*(QueueRange(queue, 0, 7) for queue in many)))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(rows(reader(cluster).read(RangePartition(QueueRange(many[0], 0, 7))))) == 7


def test_a_range_without_offsets_gives_nothing(cluster: EmbeddedCluster) -> None:
    assert rows(reader(cluster).read(RangePartition(QueueRange(A0, 5, 5), QueueRange(A0, 7, 8)))) == [(7, "row 7")]


def test_bodies_may_be_asked_for_as_they_are(cluster: EmbeddedCluster) -> None:
    binary = source_schema(StructType([StructField("BODY", BinaryType())]))
    raw = RocketMQReader(ConnectionOptions(name_server=cluster.nameserver), read_source({"topic": "orders"}), binary)
    (batch,) = raw.read(RangePartition(QueueRange(A0, 0, 1)))
    assert batch.to_pydict() == {"BODY": [b"row 0"]}
    assert batch.schema == binary.spark_schema


def test_a_range_is_as_long_as_it_says() -> None:
    assert QueueRange(A0, 3, 9).offsets == OffsetRange(3, 9)
