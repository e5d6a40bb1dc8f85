"""The stream reader called as PySpark before 4.2 calls it: neither start nor limit, and the end first."""

from collections.abc import Iterator

import pytest

from pyrmq_core import MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_spark import source, worker
from pyrmq_spark.read.range_planner import QueueRange, RangePartition
from pyrmq_spark.source import RocketMQDataSource
from pyrmq_spark.spark_errors import OldPySpark, RocketMQSparkError
from pyrmq_spark.stream import progress, stream_reader
from pyrmq_spark.stream.stream_offset import StreamOffset
from tests.support.stream_queries import SCHEMA, Offset, Query, numbers, send, text


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster
        worker.close()


@pytest.fixture(autouse=True)
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (source, progress, stream_reader):
        monkeypatch.setattr(module, "has_admission_control", lambda: False)


class OlderQuery(Query):
    """A query of PythonMicroBatchStream 4.1, which has the reader plan from and to the last offset when it starts."""

    def start(self) -> Offset:
        return self.offset if self.offset is not None else text(self.reader.initialOffset())

    def plan(self, *, everything: bool = True) -> Offset:
        return text(self.reader.latestOffset())

    def begin(self) -> None:
        """Starts anew, as a query with another trigger than `availableNow` does."""
        self.restart()
        if self.offset is not None:
            assert self.reader.partitions(self.offset, self.offset) == []

    def available_now(self, failed: Offset | None = None) -> list[str]:
        """Runs to the end that is fixed first; a batch that `failed` before comes again, and then the rest."""
        self.restart()
        end = self.plan()
        seen = failed or self.offset
        if seen is not None:
            assert self.reader.partitions(seen, seen) == []
        bodies = [] if failed is None else self.run(self.start(), failed)
        return bodies + self.run(self.start(), end)


@pytest.mark.parametrize("first", ["earliest", "latest"])
def test_runs_of_available_now_read_each_row_once(
    cluster: EmbeddedCluster, producer: Producer, topic: str, first: str
) -> None:
    send(producer, cluster, topic, 0, 5)
    query = OlderQuery(cluster, topic=topic, startingOffsets=first)
    assert query.available_now() == (numbers(0, 5) if first == "earliest" else [])
    send(producer, cluster, topic, 5, 8)
    send(producer, cluster, topic, 8, 9, "b")
    assert query.available_now() == numbers(5, 9)
    assert query.available_now() == []
    send(producer, cluster, topic, 9, 12)
    assert query.available_now() == numbers(9, 12)


def test_batches_of_one_run_and_of_the_next(cluster: EmbeddedCluster, producer: Producer, topic: str) -> None:
    query = OlderQuery(cluster, topic=topic)
    assert query.batch() == []
    send(producer, cluster, topic, 0, 5)
    assert query.batch() == numbers(0, 5)
    send(producer, cluster, topic, 5, 8)
    query.begin()
    assert query.batch() == numbers(5, 8)
    send(producer, cluster, topic, 8, 9)
    assert query.available_now() == numbers(8, 9)


def test_batch_0_that_failed_comes_again_and_the_rest_follows(
    cluster: EmbeddedCluster, producer: Producer, topic: str
) -> None:
    """The start is elsewhere when the query starts again; the planned batch keeps its own."""
    queue, group = MessageQueue(topic, "broker-a", 0), f"g_{topic}"
    send(producer, cluster, topic, 0, 8)
    query = OlderQuery(cluster, topic=topic, startingOffsets="committed", consumerGroup=group)
    with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
        consumer.commit(queue, 5)
        failed = query.plan()
        consumer.commit(queue, 8)
    send(producer, cluster, topic, 8, 12)
    assert query.available_now(failed) == numbers(5, 12)


def test_a_queue_that_has_come_is_read_from_its_beginning(
    cluster: EmbeddedCluster, producer: Producer, admin: Admin, topic: str
) -> None:
    other = f"{topic}_b"
    query = OlderQuery(cluster, topicPattern=f"{topic}.*")
    assert query.available_now() == []
    admin.create_topic(other, queues=1)
    send(producer, cluster, other, 0, 3)
    assert query.available_now() == numbers(0, 3)


def planned_blindly(topic: str, last: int) -> Offset:
    """Returns an end of `availableNow` whose queue keeps offsets 2 to `last`."""
    queue = MessageQueue(topic, "broker-a", 0)
    return StreamOffset({queue: last}, {queue: 2}, {queue: 2}).to_json()


@pytest.mark.parametrize(("position", "last"), [(1, 4), (5, 4)], ids=["expired", "shorter"])
def test_losses_are_found_when_the_batch_is_planned(
    cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture, position: int, last: int
) -> None:
    start = StreamOffset({MessageQueue(topic, "broker-a", 0): position}).to_json()
    end = planned_blindly(topic, last)
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] .*Set failOnDataLoss=false"):
        OlderQuery(cluster, topic=topic).reader.partitions(start, end)
    ranges = OlderQuery(cluster, topic=topic, failOnDataLoss=False).reader.partitions(start, end)
    assert [part.ranges for part in ranges if isinstance(part, RangePartition)] == (
        [(QueueRange(MessageQueue(topic, "broker-a", 0), 2, 4),)] if position == 1 else []
    )
    assert "skipped, since failOnDataLoss=false" in caplog.text


def test_a_queue_whose_broker_was_away_is_named(
    cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = StreamOffset({MessageQueue(topic, "broker-c", 0): 7}).to_json()
    assert OlderQuery(cluster, topic=topic).reader.partitions(start, planned_blindly(topic, 2)) == []
    assert (
        f"offsets are forgotten, and they are read from their beginning when they come back; PySpark 4.2 or newer "
        f"keeps them: {topic}/broker-c/0" in caplog.text
    )


def test_limits_are_refused(cluster: EmbeddedCluster, topic: str) -> None:
    options = {"nameServer": cluster.nameserver, "topic": topic, "maxOffsetsPerTrigger": "5"}
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_OLD_PYSPARK\] maxOffsetsPerTrigger.*need PySpark 4.2"):
        RocketMQDataSource(options).streamReader(SCHEMA)


def test_a_lag_that_progress_does_not_have_is_refused() -> None:
    with pytest.raises(OldPySpark, match=r"before PySpark 4\.2 a query does not report"):
        progress.lag(None)  # type: ignore[arg-type]
