"""Columns of a row, and ids made of content, on Apache's brokers and in its tools: a task's write, without Spark."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from pyrmq_core.blocking import Admin, Producer, PullConsumer
from pyrmq_core.columnar import content_ids
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_sink
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.commit_message import PartitionWritten, WriteAttempt
from pyrmq_spark.write.write_task import PartitionWrite
from tests.support.apache import ApacheCluster
from tests.support.spark import wait_readable
from tests.support.spark_batches import topic
from tests.support.spark_streams import wait_until

__all__ = ["topic"]


@pytest.fixture(autouse=True)
def clients() -> Iterator[None]:
    """The worker's clients, closed with the test."""
    yield
    worker.close()


def write_rows(cluster: ApacheCluster, topic: str, rows: pa.RecordBatch, **options: str) -> PartitionWritten:
    schema = SinkSchema({name: number for number, name in enumerate(rows.schema.names)}, topic)
    connection = ConnectionOptions(name_server=cluster.nameserver.address)
    return PartitionWrite(connection, read_sink(options), schema, WriteAttempt("q", 1, 0, 0)).run(iter([rows]))


def delayed(ahead: timedelta) -> pa.RecordBatch:
    at = pa.array([datetime.now(UTC) + ahead] * 3, pa.timestamp("us", "UTC"))
    return pa.record_batch({"body": pa.array([b"x", b"y", b"z"]), "deliverAt": at})


def test_rows_are_delivered_at_their_time(apache_5: ApacheCluster, topic: str) -> None:
    with Admin(nameserver=apache_5.nameserver.address, timeout=20) as admin:
        admin.create_topic(topic, queues=2)
    rows = delayed(timedelta(seconds=3))
    written = write_rows(apache_5, topic, rows)
    assert (written.rows, written.requests) == (3, 3)
    wait_readable(apache_5.nameserver.address, topic, 3, seconds=60)
    due = rows.column("deliverAt")[0].as_py() - timedelta(seconds=1)  # RocketMQ cuts to whole seconds
    with PullConsumer("tests", nameserver=apache_5.nameserver.address, timeout=20) as consumer:
        pulls = [consumer.pull(queue, 0) for queue in consumer.message_queues(topic)]
    stored = [message.store_timestamp for pulled in pulls for message in pulled.messages]
    assert len(stored) == 3
    assert min(stored) >= due


@pytest.mark.soak
def test_a_broker_before_5_is_not_asked_to_deliver_later(apache_4: ApacheCluster, topic: str) -> None:
    with pytest.raises(RocketMQSparkError, match=r"need brokers of 5\.0 or later; .* is older"):
        write_rows(apache_4, topic, delayed(timedelta(seconds=3)))


def test_rows_go_by_key_and_are_found_by_ids_of_content(apache: ApacheCluster, topic: str) -> None:
    nameserver = apache.nameserver.address
    with Admin(nameserver=nameserver, timeout=20) as admin:
        admin.create_topic(topic, queues=4)
    rows = pa.record_batch(
        {"body": pa.array([b"%d" % n for n in range(500)]), "shardingKey": pa.array([f"k{n % 9}" for n in range(500)])}
    )
    written = write_rows(apache, topic, rows, messageIds="content")
    with Producer("tests", nameserver=nameserver, send_timeout=20) as producer:
        info = producer.publish_info(topic)
        expected = {str(info.queue_of_key(f"k{number}")) for number in range(9)}
    assert set(written.rows_by_queue) == expected
    wait_readable(nameserver, topic, 500)
    some_id = content_ids(rows, b"q/1/0", 0)[123].as_py()

    def is_found() -> bool:
        return some_id in apache.mqadmin("queryMsgByUniqueKey", "-t", topic, "-i", some_id)

    wait_until(is_found)  # indexed a moment after it is readable
