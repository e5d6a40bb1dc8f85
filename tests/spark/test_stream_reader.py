"""The stream reader called as Spark calls it, in this process, against our own brokers; offsets pass as JSON text."""

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.offsets import OffsetFound
from pyrmq_spark import QueueLag, lag, worker
from pyrmq_spark.source import RocketMQDataSource
from pyrmq_spark.spark_errors import InvalidOption, RocketMQSparkError
from pyrmq_spark.stream.latest_offsets import FLOOR_SECONDS
from tests.support.stream_queries import SCHEMA, Query, numbers, send, text, wait_end

datasource = pytest.importorskip("pyspark.sql.streaming.datasource", reason="before PySpark 4.2 a trigger has no limit")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, settings={"enablePropertyFilter": "true"}) as cluster:
        yield cluster
        worker.close()


# --- Where it starts, and goes on


def test_a_stream_starts_at_the_end_and_goes_on(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    send(producer, cluster, topic, 0, 5)
    query = Query(cluster, topic=topic)
    assert query.batch() == []
    send(producer, cluster, topic, 5, 8)
    send(producer, cluster, topic, 8, 10, "b")
    assert query.batch() == numbers(5, 10)
    assert query.batch() == []


def test_without_news_the_start_comes_back_as_it_was(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    query = Query(cluster, topic=topic, startingOffsets="earliest")
    send(producer, cluster, topic, 0, 3)
    query.batch()
    odd = {name: query.start()[name] for name in reversed(query.start())}
    assert json.dumps(query.reader.latestOffset(odd, datasource.ReadAllAvailable())) == json.dumps(odd)


def test_asked_again_at_once_it_waits_and_never_answers_from_memory(
    cluster: EmbeddedCluster, producer: Producer, topic: str
) -> None:
    """`processAllAvailable` ends when a trigger finds nothing: messages sent before it must be found."""
    query = Query(cluster, topic=topic)
    start = query.start()
    began = time.monotonic()
    for _ in range(3):
        assert query.reader.latestOffset(start, datasource.ReadAllAvailable()) == start
    assert time.monotonic() - began >= 2 * FLOOR_SECONDS
    send(producer, cluster, topic, 0, 3)
    assert query.batch() == numbers(0, 3)


def test_a_failure_in_batch_0_replays_it_exactly(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    """Spark requests the initial offset anew, which by then lies elsewhere."""
    send(producer, cluster, topic, 0, 5)
    query = Query(cluster, topic=topic)
    assert query.start() == text(query.reader.initialOffset())
    send(producer, cluster, topic, 5, 8)
    planned = query.plan()
    send(producer, cluster, topic, 8, 12)
    query.restart()
    other_start = query.start()
    assert other_start["offsets"] != planned["from"]
    assert query.run(other_start, planned) == numbers(5, 8)
    assert query.batch() == numbers(8, 12)


@pytest.mark.parametrize(
    ("value", "bodies"), [(-2, numbers(0, 4)), (-1, []), (0, numbers(0, 4)), (1, numbers(1, 4)), (2, numbers(2, 4))]
)
def test_offsets_to_start_at(
    cluster: EmbeddedCluster, producer: Producer, topic: str, value: int, bodies: list[str]
) -> None:
    send(producer, cluster, topic, 0, 4)
    start = {topic: {"broker-a": {"0": value}, "broker-b": {"0": -1}}}
    assert Query(cluster, topic=topic, startingOffsets=json.dumps(start)).batch() == bodies


def test_offsets_that_leave_queues_out_list_both_sets(cluster: EmbeddedCluster, topic: str) -> None:
    start = {topic: {"broker-a": {"0": 1, "7": 1}}}
    with pytest.raises(
        RocketMQSparkError, match=rf"leaves out {topic}/broker-b/0; it names {topic}/broker-a/7.*specif"
    ):
        Query(cluster, topic=topic, startingOffsets=json.dumps(start)).plan()


def test_times_to_start_at(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    send(producer, cluster, topic, 0, 3)
    future = "2999-01-01T00:00:00Z"
    for options in ({}, {"startingOffsetsByTimestampStrategy": "error"}):
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_INVALID_OFFSETS\] .*has no message stored at or after"):
            Query(cluster, topic=topic, startingTimestamp=future, **options).plan()
    late = Query(cluster, topic=topic, startingTimestamp=future, startingOffsetsByTimestampStrategy="latest")
    assert late.batch() == []
    send(producer, cluster, topic, 3, 5)
    assert late.batch() == numbers(3, 5)


def test_the_general_time_wins_over_that_of_queues_and_over_offsets(
    cluster: EmbeddedCluster, producer: Producer, topic: str
) -> None:
    send(producer, cluster, topic, 0, 3)
    all_of_it = {"topic": topic, "startingOffsets": "latest", "startingOffsetsByTimestamp": json.dumps({topic: 0})}
    assert Query(cluster, **all_of_it).batch() == numbers(0, 3)
    with pytest.raises(RocketMQSparkError, match="has no message"):
        Query(cluster, **all_of_it, startingTimestamp="2999-01-01T00:00:00Z").plan()


def test_what_the_group_has_committed(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    send(producer, cluster, topic, 0, 5)
    with PullConsumer("streamers", nameserver=cluster.nameserver) as consumer:
        consumer.commit(MessageQueue(topic, "broker-a", 0), 3)
    query = Query(cluster, topic=topic, startingOffsets="committed", consumerGroup="streamers")
    assert query.batch() == numbers(3, 5)


def test_a_stream_takes_no_end(cluster: EmbeddedCluster) -> None:
    for option, value in (("endingOffsets", "latest"), ("endingTimestamp", "0")):
        source = RocketMQDataSource({"nameServer": cluster.nameserver, "topic": "t", option: value})
        with pytest.raises(RocketMQSparkError, match=rf"\[RMQ_INVALID_OPTION\] {option}: a stream has no end"):
            source.streamReader(SCHEMA)


def test_a_checkpoint_of_another_source_is_reported(cluster: EmbeddedCluster, topic: str) -> None:
    query = Query(cluster, topic=topic)
    query.offset = {topic: {"0": 5}}
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_INVALID_CHECKPOINT\] .*not written by the source rocketmq"):
        query.batch()


def test_an_unknown_topic(cluster: EmbeddedCluster) -> None:
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_TOPIC_NOT_FOUND\] .*nowhere"):
        Query(cluster, topic="nowhere").plan()


# --- The size of a batch


def test_a_cap_divides_in_proportion_and_survives_a_restart(
    cluster: EmbeddedCluster, producer: Producer, topic: str
) -> None:
    send(producer, cluster, topic, 0, 90)
    send(producer, cluster, topic, 90, 91, "b")
    query = Query(cluster, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    assert isinstance(query.reader.getDefaultReadLimit(), datasource.ReadMaxRows)
    assert query.batch() == [*numbers(0, 9), "90"]
    query.restart()
    assert query.batch() == numbers(9, 19)
    assert query.batch(everything=True) == numbers(19, 90)
    assert query.batch() == []


def test_a_minimum_waits_for_rows_or_time(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    send(producer, cluster, topic, 0, 3)
    query = Query(cluster, topic=topic, startingOffsets="earliest", minOffsetsPerTrigger=15, maxTriggerDelay="1h")
    assert query.batch() == numbers(0, 3)
    send(producer, cluster, topic, 3, 9)
    assert query.batch() == []
    send(producer, cluster, topic, 9, 21)
    assert query.batch() == numbers(3, 21)
    send(producer, cluster, topic, 21, 22)
    assert query.batch() == []
    query.restart(maxTriggerDelay="0ms")
    assert query.batch() == numbers(21, 22)


def test_a_cap_of_bytes(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    queue = MessageQueue(topic, "broker-a", 0)
    producer.send_batch([Message(topic, b"x" * 1000) for _ in range(100)], queue=queue)
    wait_end(cluster, queue, 100)
    query = Query(cluster, topic=topic, startingOffsets="earliest", maxBytesPerTrigger=20_000)
    assert 15 <= len(query.batch()) <= 20
    query.restart(maxBytesPerTrigger=10)
    assert len(query.batch()) == 1


def test_available_now_ends_where_it_began(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    send(producer, cluster, topic, 0, 15)
    query = Query(cluster, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5, minOffsetsPerTrigger=5)
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == numbers(0, 5)
    send(producer, cluster, topic, 15, 20)
    assert [query.batch() for _ in range(3)] == [numbers(5, 10), numbers(10, 15), []]
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == numbers(15, 20)


# --- Queues that come and go


def test_new_queues_are_read_from_their_beginning(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str
) -> None:
    query = Query(cluster, topic=topic)
    assert query.batch() == []
    admin.create_topic(topic, queues=2)
    queue = MessageQueue(topic, "broker-b", 1)
    producer.send_batch([Message(topic, b"new")], queue=queue)
    wait_end(cluster, queue, 1)
    assert query.batch() == ["new"]


def test_the_lag_has_a_queue_that_no_batch_has_read(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str
) -> None:
    send(producer, cluster, topic, 0, 1)
    query = Query(cluster, topic=topic, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    assert query.batch() == ["0"]
    admin.create_topic(topic, queues=2)
    queue = MessageQueue(topic, "broker-b", 1)
    producer.send_batch([Message(topic, b"new")] * 3, queue=queue)
    wait_end(cluster, queue, 3)
    assert query.batch() == []
    source = {"endOffset": query.offset, "latestOffset": query.reader.reportLatestOffset()}
    progress = SimpleNamespace(progress=SimpleNamespace(json=json.dumps({"sources": [source]})))
    assert QueueLag(queue, 0, 3) in lag(progress)  # type: ignore[arg-type]


def test_a_pattern_finds_topics_that_come_later(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str
) -> None:
    query = Query(cluster, topicPattern=f"{topic}.*")
    assert query.batch() == []
    admin.create_topic(f"{topic}_x", queues=1)
    send(producer, cluster, f"{topic}_x", 0, 3)
    assert query.batch() == numbers(0, 3)


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_is_deleted(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str, fail: bool
) -> None:
    other = f"{topic}_x"
    admin.create_topic(other, queues=1)
    send(producer, cluster, topic, 0, 3)
    query = Query(cluster, topicPattern=f"{topic}.*", startingOffsets="earliest", failOnDataLoss=str(fail).lower())
    assert query.batch() == numbers(0, 3)
    admin.delete_topic(topic)
    send(producer, cluster, other, 3, 5)
    if fail:
        with pytest.raises(RocketMQSparkError, match=rf"\[RMQ_DATA_LOSS\] .*{topic}/broker-a/0 is gone after offset 3"):
            query.batch()
        return
    assert query.batch() == numbers(3, 5)
    assert topic not in query.start()["offsets"]
    admin.create_topic(topic, queues=1)
    send(producer, cluster, topic, 10, 12)
    assert query.batch() == numbers(10, 12)


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_is_made_anew(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str, fail: bool
) -> None:
    send(producer, cluster, topic, 0, 5)
    query = Query(cluster, topic=topic, startingOffsets="earliest", failOnDataLoss=str(fail).lower())
    assert query.batch() == numbers(0, 5)
    admin.delete_topic(topic)
    admin.create_topic(topic, queues=1)
    send(producer, cluster, topic, 20, 22)
    if fail:
        with pytest.raises(
            RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] .*read up to offset 5, but its broker keeps 0 to 2"
        ):
            query.batch()
        return
    assert query.batch() == []  # two rows may be the rest of five that were read: nothing comes twice
    send(producer, cluster, topic, 22, 24)
    assert query.batch() == numbers(22, 24)


@pytest.mark.parametrize("fail", [True, False])
def test_offsets_that_have_expired(cluster: EmbeddedCluster, producer: Producer, topic: str, fail: bool) -> None:
    send(producer, cluster, topic, 0, 10)
    query = Query(cluster, topic=topic, startingOffsets="earliest", failOnDataLoss=str(fail).lower())
    query.start()

    async def trimmed(request: Command, peer: Peer) -> Command:
        return OffsetFound(
            4 if request.ext["topic"] == topic and request.ext.get("bname") == "broker-a" else 0
        ).to_command()

    control = cluster.control(RequestCode.GET_MIN_OFFSET, trimmed)
    query.offset = query.start()
    try:
        if fail:
            with pytest.raises(RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] .*offsets 0 to 4 of .* have expired"):
                query.batch()
        else:
            assert query.batch() == numbers(4, 10)
    finally:
        control.remove()


def test_a_run_of_available_now_whose_topic_changes_fails_either_way(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str
) -> None:
    send(producer, cluster, topic, 0, 15)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 5, "failOnDataLoss": "false"}
    query = Query(cluster, topic=topic, **options)
    query.reader.prepareForTriggerAvailableNow()
    query.batch()
    admin.delete_topic(topic)
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] .*began with queues that are gone now"):
        query.batch()
    admin.create_topic(topic, queues=1)
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] .*up to offset 15, but it now ends at 0"):
        query.batch()


# --- Brokers that are down


@pytest.mark.parametrize("fail", [True, False])
def test_a_broker_that_is_down_is_waited_for_and_nothing_is_skipped(
    cluster: EmbeddedCluster, producer: Producer, topic: str, fail: bool
) -> None:
    send(producer, cluster, topic, 0, 5, "a")
    send(producer, cluster, topic, 5, 8, "b")
    options = {"startingOffsets": "earliest", "failOnDataLoss": str(fail).lower()}
    query = Query(cluster, topic=topic, pullTimeoutMs=2000, **options)
    assert query.batch() == numbers(0, 8)
    cluster.kill("broker-b")
    try:
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\] .*waited 2 s in vain.*nothing was"):
            query.batch()
    finally:
        cluster.start("broker-b")
    query.restart(pullTimeoutMs=20_000)
    send(producer, cluster, topic, 8, 10, "b")
    assert query.batch() == numbers(8, 10)
    assert sorted(query.rows, key=lambda row: int(row[2])) == [
        *(("broker-a", n, str(n)) for n in range(5)),
        *(("broker-b", n - 5, str(n)) for n in range(5, 10)),
    ]


# --- Filters


def test_a_batch_that_is_filtered_away_still_moves_on(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    send(producer, cluster, topic, 0, 40)
    query = Query(cluster, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10, tags="nobody")
    assert [query.batch() for _ in range(4)] == [[]] * 4
    assert query.start()["offsets"][topic]["broker-a"]["0"] == 40
    query.restart(tags="t1")
    send(producer, cluster, topic, 40, 44)
    assert query.batch() == ["41", "43"]


def test_sql_over_properties(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    queue = MessageQueue(topic, "broker-a", 0)
    producer.send_batch([Message(topic, f"{n}".encode(), properties={"n": f"{n}"}) for n in range(2000)], queue=queue)
    wait_end(cluster, queue, 2000)
    query = Query(cluster, topic=topic, startingOffsets="earliest", sql="n = 1990 OR n < 2")
    assert query.batch() == ["0", "1", "1990"]


def test_an_expression_that_no_broker_can_evaluate_is_reported(cluster: EmbeddedCluster, topic: str) -> None:
    query = Query(cluster, topic=topic, startingOffsets="earliest", sql="n = = 1")
    query.start()
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_INVALID_OPTION\] .*option sql is 'n = = 1', which broker-"):
        query.batch()
    with pytest.raises(InvalidOption, match="tags and sql exclude each other"):
        Query(cluster, topic=topic, tags="a", sql="n = 1")


def test_a_broker_without_property_filters_is_reported(cluster: EmbeddedCluster) -> None:
    with EmbeddedCluster() as plain:
        with Admin(nameserver=plain.nameserver) as own:
            own.create_topic("t", queues=1)
        query = Query(plain, topic="t", sql="n = 1")
        query.start()
        with pytest.raises(RocketMQSparkError, match="does not support consumer to filter message by SQL92"):
            query.batch()
