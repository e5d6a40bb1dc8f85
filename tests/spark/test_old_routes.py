"""Writes by a route that a worker has kept while the topic changed: no row is lost, and none is reported as refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_spark import worker
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.write_task import PartitionWrite
from tests.support.sink import BODY, bodies, stored, task
from tests.support.spark import wait_readable

KEYED = SinkSchema({"body": 0, "shardingKey": 1}, "orders")
QUEUED = SinkSchema({"body": 0, "brokerName": 1, "queueId": 2}, "orders")
TOPICS = SinkSchema({"body": 0, "topic": 1}, None)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """One broker; its topic `orders` has 8 queues when the worker looks it up first, and the test changes it."""
    with EmbeddedCluster(brokers=1) as cluster:
        make(cluster, 8)
        task(cluster).run(iter([bodies(0, 1)]))
        yield cluster
        worker.close()


def dead_task(
    cluster: EmbeddedCluster, schema: SinkSchema = BODY, partition: int = 0, **options: str
) -> PartitionWrite:
    """Returns a task that writes rows refused for their content to a dead letter topic."""
    dead = {"onRejected": "deadLetter", "deadLetterTopic": "refused"}
    return task(cluster, partition, 0, schema, "q", 0, **dead, **options)


def make(cluster: EmbeddedCluster, queues: int, topic: str = "orders") -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic(topic, queues=queues)


def keyed(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    keys = pa.array([f"key-{number % 10}" for number in numbers])
    return bodies(first, count).append_column("shardingKey", keys)


def queued(queue_id: int) -> pa.RecordBatch:
    ids = pa.array([queue_id] * 10, pa.int32())
    return bodies(0, 10).append_column("brokerName", pa.array(["broker-a"] * 10)).append_column("queueId", ids)


@pytest.mark.parametrize("make_task", [task, dead_task], ids=["fail", "deadLetter"])
@pytest.mark.parametrize("selection", ["partition", "request"])
def test_a_topic_that_shrank_takes_all_rows(
    cluster: EmbeddedCluster, selection: str, make_task: Callable[..., PartitionWrite]
) -> None:
    make(cluster, 1)
    for partition in range(10):
        written = make_task(cluster, partition=partition, queueSelection=selection).run(iter([bodies(0, 10)]))
        assert (written.rows, written.dead_lettered, written.perhaps_repeated) == (10, 0, 0)
        assert set(written.rows_by_queue) == {"orders/broker-a/0"}
    wait_readable(cluster.nameserver, "orders", 100)


def test_rows_with_keys_keep_their_order(cluster: EmbeddedCluster) -> None:
    """The topic shrinks under the task: rows under way are stored where they went, the rest follows elsewhere."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield keyed(0, 500)
        make(cluster, 1)
        yield keyed(500, 500)
        yield keyed(1000, 500)

    written = dead_task(cluster, KEYED, maxBatchBytes="2000").run(batches())
    assert (written.rows, written.dead_lettered) == (1500, 0)
    assert written.retries <= 10  # one a lane, not one a request
    wait_readable(cluster.nameserver, "orders", written.rows_by_queue["orders/broker-a/0"])
    last = [int(body.split()[1]) for body in stored(cluster)["orders/broker-a/0"]]
    for key in range(10):
        numbers = [number for number in last if number % 10 == key and number >= 1000]
        assert numbers == sorted(numbers)
        assert len(numbers) == 50


def test_a_row_that_names_a_queue_that_is_gone_fails_by_name_and_is_no_dead_letter(cluster: EmbeddedCluster) -> None:
    make(cluster, 1)
    with pytest.raises(
        RocketMQSparkError,
        match=r"\[RMQ_QUEUE_NOT_FOUND\] partition 0: topic orders has no queue 7 on broker-a; by the route of this",
    ):
        dead_task(cluster, QUEUED).run(iter([queued(7)]))


def test_a_row_may_name_a_queue_that_is_newer_than_the_route(cluster: EmbeddedCluster) -> None:
    make(cluster, 16)
    written = task(cluster, schema=QUEUED).run(iter([queued(15)]))
    assert written.rows_by_queue == {"orders/broker-a/15": 10}


def test_a_topic_that_was_deleted_is_created_again_as_the_options_say(cluster: EmbeddedCluster) -> None:
    """By the worker that has created it before."""
    rows = pa.record_batch({"body": pa.array([b"x"]), "topic": pa.array(["made"])})
    for _ in range(2):
        task(cluster, schema=TOPICS, createTopic="normal", topicQueueNums="7").run(iter([rows]))
        with (
            Producer("tests", nameserver=cluster.nameserver) as producer,
            Admin(nameserver=cluster.nameserver) as admin,
        ):
            assert len(producer.message_queues("made")) == 7
            admin.delete_topic("made")


@pytest.mark.parametrize("queue_selection", ["partition", "request"])
def test_a_topic_that_brokers_make_is_on_all_of_them(queue_selection: str) -> None:
    """createTopic=auto: tasks of one worker, one after another."""
    with EmbeddedCluster(brokers=3) as cluster:
        rows: Counter[str] = Counter()
        for partition in range(6):
            batches = (bodies(first, 10) for first in range(0, 40, 10))
            written = task(cluster, partition, schema=BODY, queueSelection=queue_selection).run(batches)
            for queue, count in written.rows_by_queue.items():
                rows[queue.split("/")[1]] += count
        assert rows == {"broker-a": 80, "broker-b": 80, "broker-c": 80}
        with Producer("tests", nameserver=cluster.nameserver) as producer:
            queues = producer.message_queues("orders")
        assert Counter(queue.broker_name for queue in queues) == {"broker-a": 4, "broker-b": 4, "broker-c": 4}
        worker.close()
