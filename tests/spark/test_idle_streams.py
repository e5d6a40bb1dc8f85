"""A stream of many queues that waits: a request a broker for each trigger, and still nothing is overlooked."""

import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.figures.topic_stats import TopicOffset, TopicStatsTable
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.stream.latest_offsets import floor_seconds
from pyrmq_spark.stream.stream_offset import StreamOffset
from pyrmq_spark.stream.stream_reader import RocketMQStreamReader
from tests.support.spark import wait_readable
from tests.support.stream_queries import text

QUEUES = [MessageQueue("many", broker, number) for broker in ("broker-a", "broker-b") for number in range(20)]
OFFSET_CODES = (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET)
datasource = pytest.importorskip("pyspark.sql.streaming.datasource", reason="before PySpark 4.2 a trigger has no limit")
ALL = datasource.ReadAllAvailable()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers with 20 queues of `many` each, one message in each queue."""
    with EmbeddedCluster(brokers=2) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("many", queues=20)
        send(cluster, *QUEUES)
        wait_readable(cluster.nameserver, "many", len(QUEUES))
        yield cluster
        worker.close()


def send(cluster: EmbeddedCluster, *queues: MessageQueue) -> None:
    with Producer("setup", nameserver=cluster.nameserver) as producer:
        for queue in queues:
            producer.send(Message("many", str(queue).encode()), queue=queue)


def reader(cluster: EmbeddedCluster, **options: str) -> RocketMQStreamReader:
    schema = source_schema(StructType([StructField("body", StringType())]))
    settings = read_source({"topic": "many", "startingOffsets": "earliest"} | options)
    return RocketMQStreamReader(ConnectionOptions(name_server=cluster.nameserver), settings, schema)


def latest(stream: RocketMQStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to a trigger; offsets pass as text, as in Spark."""
    return text(stream.latestOffset(text(start), ALL))


@contextmanager
def counted(cluster: EmbeddedCluster) -> Iterator[Counter[int]]:
    """Counts the requests for offsets."""
    counts: Counter[int] = Counter()

    async def count(request: Command, peer: Peer) -> Pass:
        counts[request.code] += 1
        return PASS

    with ExitStack() as stack:
        for code in OFFSET_CODES:
            stack.callback(cluster.control(code, count).remove)
        yield counts


def test_an_idle_trigger_is_a_request_a_broker(cluster: EmbeddedCluster) -> None:
    stream = reader(cluster)
    start = latest(stream, stream.initialOffset())
    with counted(cluster) as counts:
        for _ in range(5):
            assert latest(stream, start) == start
            assert stream.reportLatestOffset() == StreamOffset(StreamOffset.from_json(start).offsets).to_json()
    assert counts == {RequestCode.GET_TOPIC_STATS_INFO: 10}


@pytest.mark.parametrize(("queues", "seconds"), [(0, 0.1), (200, 0.1), (1000, 0.2), (100_000, 1.0)])
def test_brokers_are_asked_less_often_the_more_queues_there_are(queues: int, seconds: float) -> None:
    assert floor_seconds(queues) == pytest.approx(seconds)


def test_a_message_in_any_queue_ends_the_wait(cluster: EmbeddedCluster) -> None:
    stream = reader(cluster)
    start = latest(stream, stream.initialOffset())
    for queue in (QUEUES[0], QUEUES[33]):
        assert latest(stream, start) == latest(stream, start) == start
        send(cluster, queue)
        end = latest(stream, start)
        assert StreamOffset.from_json(end).ranges().keys() == {queue}
        reported = stream.reportLatestOffset()
        assert reported is not None
        assert reported["offsets"] == end["offsets"]
        (partition,) = stream.partitions(start, end)
        copy = pickle.loads(pickle.dumps(stream))
        assert [batch.to_pydict() for batch in copy.read(partition)] == [{"body": [str(queue)]}]
        start = end


@pytest.mark.parametrize("fail", [True, False])
def test_a_queue_that_becomes_shorter_while_the_stream_waits(cluster: EmbeddedCluster, fail: bool) -> None:
    stream = reader(cluster, failOnDataLoss=str(fail).lower())
    start = latest(stream, stream.initialOffset())
    assert latest(stream, start) == start

    async def shorter(request: Command, peer: Peer) -> Command:
        rows = {queue: TopicOffset(0, int(queue != QUEUES[3])) for queue in QUEUES if queue.broker_name == "broker-a"}
        return TopicStatsTable(rows, 0.0).to_command()

    control = cluster.control(RequestCode.GET_TOPIC_STATS_INFO, shorter, server="broker-a")
    try:
        if fail:
            with pytest.raises(RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] .*many/broker-a/3 was read up to"):
                latest(stream, start)
        else:
            end = latest(stream, start)
            assert end["offsets"]["many"]["broker-a"]["3"] == 0
            assert latest(stream, end) == end
    finally:
        control.remove()
