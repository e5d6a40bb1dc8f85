"""One task's write in this process, against two brokers of our own, and the resulting messages in their queues."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyrmq_core import MessageExt, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, PullConsumer
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_sink
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.commit_message import WriteAttempt
from pyrmq_spark.write.write_task import PartitionWrite

BODY = SinkSchema({"body": 0}, "orders")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers for one test, which may break them; each has four queues of the topic `orders`."""
    with EmbeddedCluster(brokers=2) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("orders", queues=4)
        yield cluster
        worker.close()


def bodies(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"body": pa.array([f"row {first + number}".encode() for number in range(count)])})


def task(
    cluster: EmbeddedCluster,
    partition: int = 0,
    base: int = 0,
    schema: SinkSchema = BODY,
    query: str = "q",
    batch: int = 0,
    **options: str,
) -> PartitionWrite:
    attempt = WriteAttempt(query, batch, partition, base)
    return PartitionWrite(ConnectionOptions(name_server=cluster.nameserver), read_sink(options), schema, attempt)


def stored(cluster: EmbeddedCluster, topic: str = "orders") -> dict[str, list[str]]:
    """Returns the bodies in each queue that has any, in their order."""
    by_queue: dict[str, list[str]] = {}
    for message in messages(cluster, topic):
        queue = MessageQueue(topic, message.broker_name, message.queue_id)
        by_queue.setdefault(str(queue), []).append(message.body.decode())
    return by_queue


def messages(cluster: EmbeddedCluster, topic: str = "orders") -> list[MessageExt]:
    """Returns all messages, queue after queue."""
    contents: list[MessageExt] = []
    with PullConsumer("tests", nameserver=cluster.nameserver) as consumer:
        for queue, bounds in consumer.offset_bounds(consumer.message_queues(topic)).items():
            position = bounds.start
            while position < bounds.end:
                pulled = consumer.pull(queue, position)
                contents += pulled.messages
                position = pulled.next_offset
    return contents
