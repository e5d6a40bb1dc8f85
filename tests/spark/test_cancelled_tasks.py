"""Cancelled tasks and stopped queries leave no thread and no connection behind."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from pyspark.sql import SparkSession

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.loop_thread.portal import portal
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.range_planner import QueueRange, RangePartition
from pyrmq_spark.source import RocketMQReader
from tests.spark.test_lying_brokers import SCHEMA
from tests.support.spark import read, wait_readable
from tests.support.spark_streams import raise_failure, wait_until
from tests.support.worker_processes import Held, held_by, python_workers

pytestmark = [
    pytest.mark.timeout(480),
    pytest.mark.skipif(sys.platform != "linux", reason="counts by /proc, which Linux alone has"),
]

TOPIC = "cut"
MESSAGES = 3000
# Threads that pyarrow keeps for itself, in processes that have decoded something large.
ARROW_THREADS = 2
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


@pytest.fixture(scope="module", autouse=True)
def messages(cluster: EmbeddedCluster) -> None:
    with Admin(nameserver=cluster.nameserver) as admin, Producer("setup", nameserver=cluster.nameserver) as producer:
        admin.create_topic(TOPIC, queues=1)
        for first in range(0, MESSAGES, 1000):
            producer.send_batch([Message(TOPIC, f"{n}".encode()) for n in range(first, first + 1000)], queue=QUEUE)
    wait_readable(cluster.nameserver, TOPIC, MESSAGES)


async def living_tasks() -> int:
    """Returns the number of tasks on the loop that all clients of a process share."""
    return trio.lowlevel.current_statistics().tasks_living


def own_threads() -> set[threading.Thread]:
    """Returns this process's threads without those of trio's pool, which the brokers use that run in this process."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}


def test_a_read_that_is_closed_early(cluster: EmbeddedCluster) -> None:
    """The client stays, for the next task; no task or connection of the read does."""
    options = read_source({"topic": TOPIC, "pullBatchSize": "1"})
    reader = RocketMQReader(ConnectionOptions(name_server=cluster.nameserver), options, SCHEMA)

    def connections() -> int:
        return held_by(os.getpid()).connections.total()

    def cut_short() -> int:
        batches = reader.read(RangePartition(QueueRange(QUEUE, 0, MESSAGES)))
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        return connections()

    first, tasks, threads = cut_short(), portal().run(living_tasks), own_threads()
    for _ in range(5):
        cut_short()

    def is_back() -> bool:
        is_less = own_threads() <= threads and connections() <= first
        return is_less and portal().run(living_tasks) <= tasks

    wait_until(is_back)
    worker.close()
    wait_until(lambda: connections() < first)


def held(spark: SparkSession, servers: set[int]) -> dict[int, Held]:
    """Returns the threads and connections of Spark's Pythons that are connected to our servers."""
    gateway: Any = spark.sparkContext._gateway
    return {
        pid: process for pid, process in python_workers(gateway.proc.pid).items() if servers & set(process.connections)
    }


@pytest.mark.spark
def test_jobs_with_a_limit_and_queries_that_are_stopped(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    addresses = [cluster.nameserver, *cluster.brokers.values()]
    servers = {int(address.rpartition(":")[2]) for address in addresses}
    options: dict[str, Any] = {"topic": TOPIC, "pullBatchSize": 1}
    most_threads = []
    for number in range(2):
        assert len(read(spark, cluster.nameserver, **options).limit(5).collect()) == 5
        stream = spark.readStream.format("rocketmq").options(nameServer=cluster.nameserver, **options)
        frame = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 300).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / str(number)))
        query = writer.start()
        wait_until(lambda query=query: query.lastProgress is not None or not query.isActive, 200.0)  # type: ignore[misc]
        raise_failure(query)
        query.stop()
        wait_until(
            lambda: not [process for process in held(spark, servers).values() if "source_runner" in process.command],
            60.0,
        )
        left = held(spark, servers)
        for process in left.values():
            assert all(count == 1 for port, count in process.connections.items() if port in servers), process
        most_threads.append(max((process.threads for process in left.values()), default=0))
    assert most_threads[1] <= most_threads[0] + ARROW_THREADS
