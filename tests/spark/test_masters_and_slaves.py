"""Spark over brokers with slaves: writes and reads go on when a master dies, and no row is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import EmbeddedCluster, Producer
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_spark import worker
from pyrmq_spark.write.columns import SinkSchema
from tests.support.sink import bodies as rows
from tests.support.sink import stored, task
from tests.support.spark import read, wait_readable, write
from tests.support.spark_batches import some_rows
from tests.support.spark_streams import batches, bodies, raise_failure, start, stream, wait_until
from tests.support.stream_queries import Query, numbers

ROWS = 10_000


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"slaveReadEnable": "true"}
    with EmbeddedCluster(brokers=2, slaves=1, sync=True, topics={"orders": 1}, settings=settings) as cluster:
        yield cluster
        worker.close()


def send(cluster: EmbeddedCluster, first: int, last: int, *queues: str) -> None:
    """Sends a share of the numbers to the topic's queue of each broker."""
    with Producer("setup", nameserver=cluster.nameserver) as producer:
        for at, name in enumerate(queues):
            share = range(first, last)[at :: len(queues)]
            messages = [Message("orders", str(number).encode()) for number in share]
            producer.send_batch(messages, queue=MessageQueue("orders", name, 0))


def test_rows_that_a_task_wrote_to_a_dead_master_are_read_from_its_slave(cluster: EmbeddedCluster) -> None:
    """The kill falls between the first and the last acknowledgement."""
    work = task(cluster, maxBatchBytes="5000", requestTimeoutMs="1000")
    killed: list[str] = []
    acknowledged = 0

    def parts() -> Iterator[pa.RecordBatch]:
        nonlocal acknowledged
        for first in range(0, ROWS, 500):
            if work.summary.messages_by_queue and not killed:
                queue, acknowledged = next(iter(work.summary.messages_by_queue.items()))
                killed.append(queue.broker_name)
                cluster.kill(killed[0])
            yield rows(first, 500)

    written = work.run(parts())
    assert (written.rows, written.retries >= 1, len(written.rows_by_queue)) == (ROWS, True, 2)
    assert list(cluster.slaves) == ["broker-a-1", "broker-b-1"]
    assert len(cluster.brokers) == 1
    of_slave, of_master = [
        queue_bodies
        for queue, queue_bodies in sorted(stored(cluster).items(), key=lambda item: killed[0] not in item[0])
    ]
    assert set(chain(of_slave, of_master)) == {f"row {number}" for number in range(ROWS)}
    assert 0 <= len(of_slave) + len(of_master) - ROWS <= written.perhaps_repeated
    assert len(of_slave) >= acknowledged > 0


@pytest.mark.parametrize("has_keys", [False, True])
def test_a_write_waits_for_a_master(cluster: EmbeddedCluster, has_keys: bool) -> None:
    """Both brokers have only slaves when the task begins, as during the election of masters."""
    schema = SinkSchema({"body": 0, "shardingKey": 1} if has_keys else {"body": 0}, "orders")
    send(cluster, 0, 10, "broker-a", "broker-b")
    cluster.wait_for_slaves()
    masters = list(cluster.brokers)
    for name in masters:
        cluster.kill(name)

    def parts() -> Iterator[pa.RecordBatch]:
        """Yields rows, and starts the masters when the first ones are handed over."""
        for first in range(0, 1000, 100):
            table = rows(first, 100)
            yield table.append_column("shardingKey", pa.array([str(n % 7) for n in range(100)])) if has_keys else table
            if not cluster.brokers:
                for name in masters:
                    cluster.start(name)

    written = task(cluster, schema=schema, maxBatchBytes="5000").run(parts())
    assert (written.rows, len(written.rows_by_queue)) == (1000, 2 if has_keys else 1)
    wait_readable(cluster.nameserver, "orders", 1010)
    assert set(chain.from_iterable(stored(cluster).values())) >= {f"row {number}" for number in range(1000)}


def test_a_stream_goes_on_with_the_slave_and_returns(cluster: EmbeddedCluster) -> None:
    """The bodies of tests/interop/test_reading_from_slaves.py, over a slave of ours."""
    send(cluster, 0, 40, "broker-a")
    cluster.wait_for_slaves()
    query = Query(cluster, topic="orders", startingOffsets="earliest", maxOffsetsPerTrigger=15)
    assert query.batch() == numbers(0, 15)
    cluster.kill("broker-a")
    assert query.batch() == numbers(15, 30)
    query.restart()
    assert query.batch() == numbers(30, 40)
    assert query.batch() == []
    cluster.start("broker-a")
    send(cluster, 40, 50, "broker-a")
    cluster.kill("broker-a-1")
    assert query.batch() == numbers(40, 50)
    assert [row[:2] for row in query.rows] == [("broker-a", n) for n in range(50)]


def test_a_job_writes_and_reads_through_the_death_of_a_master(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    arrived = threading.Event()

    async def note(_request: Command, _peer: Peer) -> Pass:
        arrived.set()
        return PASS

    cluster.control(RequestCode.SEND_BATCH_MESSAGE, note, server="broker-a")
    frame = some_rows(spark, ROWS, 2)

    def kill() -> None:
        assert arrived.wait(60)
        cluster.kill("broker-a")

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        write(frame, cluster.nameserver, topic="orders", maxBatchBytes=5000, requestTimeoutMs=2000)
        killing.result()
    cluster.wait_for_slaves()
    results = read(spark, cluster.nameserver, topic="orders").select("brokerName", "body").collect()
    assert {bytes(row.body).decode() for row in results} == {f"row {number}" for number in range(ROWS)}
    assert {row.brokerName for row in results} == {"broker-a", "broker-b"}


def rows_read(query: StreamingQuery) -> int:
    """Returns the rows of all batches; raises the error of a query that failed."""
    raise_failure(query)
    return sum(batches(query))


def test_a_query_goes_on_over_the_death_and_return_of_a_master(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    send(cluster, 0, 300, "broker-a", "broker-b")
    cluster.wait_for_slaves()
    frame = stream(spark, cluster.nameserver, topic="orders", startingOffsets="earliest", maxOffsetsPerTrigger=40)
    query = start(frame, tmp_path, processingTime="100 milliseconds")
    try:
        wait_until(lambda: rows_read(query) >= 1, 60)
        cluster.kill("broker-a")
        wait_until(lambda: rows_read(query) >= 300, 60)
        cluster.start("broker-a")
        send(cluster, 300, 400, "broker-a", "broker-b")
        cluster.stop("broker-b")  # the other one is read from its slave now
        wait_until(lambda: rows_read(query) >= 400, 60)
        query.stop()
    finally:
        query.stop()
    assert bodies(spark, tmp_path) == list(range(400))
