"""Order under load: several tasks at once while a broker hangs, comes back, dies and is started again."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from pyrmq_core.blocking import Admin, Producer, PullConsumer
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_sink
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.commit_message import PartitionWritten, WriteAttempt
from pyrmq_spark.write.write_task import PartitionWrite
from tests.support.our_cluster import OurCluster, boot_our_cluster
from tests.support.soaking import stored_rows

TASKS = 3
ROWS_A_BATCH = 50
HANG_SECONDS = 2.4  # two tries of a request, and not the third, fall into it
PAUSE_SECONDS = 0.02
OPTIONS = {"maxBatchBytes": "1000", "requestTimeoutMs": "1000"}


@pytest.fixture(scope="module")
def processes() -> Iterator[OurCluster]:
    """A cluster of processes, which can be paused and killed by signals."""
    with boot_our_cluster() as cluster:
        yield cluster
        worker.close()


class Load:
    """Tasks that write at once, each for as long as `trouble` lasts, which begins when each has written something."""

    def __init__(self, nameserver: str, topic: str, schema: SinkSchema) -> None:
        self._nameserver = nameserver
        self._schema = schema
        self._begun = threading.Barrier(TASKS + 1)
        self._over = threading.Event()
        with Admin(nameserver=nameserver) as admin:
            admin.create_topic(topic, queues=4)

    def run(self, trouble: Callable[[], None]) -> list[PartitionWritten]:
        with ThreadPoolExecutor(TASKS) as threads:
            tasks = [threads.submit(self._task(number).run, self._batches(number)) for number in range(TASKS)]
            try:
                self._begun.wait(30)
                trouble()
            finally:
                self._over.set()
            return [task.result(60) for task in tasks]

    def _task(self, number: int) -> PartitionWrite:
        connection = ConnectionOptions(name_server=self._nameserver)
        return PartitionWrite(connection, read_sink(OPTIONS), self._schema, WriteAttempt("q", 0, number, 0))

    def _batches(self, task: int) -> Iterator[pa.RecordBatch]:
        yield self._rows(task, 0)
        self._begun.wait(30)
        first = ROWS_A_BATCH
        while not self._over.wait(PAUSE_SECONDS):
            yield self._rows(task, first)
            first += ROWS_A_BATCH
        yield self._rows(task, first)

    def _rows(self, task: int, first: int) -> pa.RecordBatch:
        """Returns one batch; each key belongs to one task."""
        numbers = range(first, first + ROWS_A_BATCH)
        keys = [f"{task}-{number % 5}" if "shardingKey" in self._schema.columns else f"{task}" for number in numbers]
        bodies = [f"{key} {number}".encode() for key, number in zip(keys, numbers, strict=True)]
        return pa.record_batch({"body": pa.array(bodies), "shardingKey": pa.array(keys)})


def trouble_in(cluster: OurCluster) -> Callable[[], None]:
    """Returns a function that disturbs both brokers.

    One hangs longer than a request waits, and handles the requests it had read when it resumes; the other dies.
    """

    def trouble() -> None:
        hung, killed = cluster.brokers["broker-a"], cluster.brokers["broker-b"]
        hung.pause()
        threading.Event().wait(HANG_SECONDS)
        hung.resume()
        killed.kill()
        killed.restart()
        hung.pause()
        threading.Event().wait(HANG_SECONDS)
        hung.resume()

    return trouble


def stored_bodies(cluster: OurCluster, topic: str) -> dict[str, list[str]]:
    """Returns the bodies of each queue, in its order."""
    with PullConsumer("tests", nameserver=cluster.nameserver.address) as consumer:
        return {queue: [body for body, _ in rows] for queue, rows in stored_rows(consumer, topic).items()}


def first_appearances(bodies: list[str]) -> dict[str, list[int]]:
    """Returns the numbers of each key in the order of their first appearance."""
    numbers: dict[str, list[int]] = {}
    for body in dict.fromkeys(bodies):
        key, _, number = body.partition(" ")
        numbers.setdefault(key, []).append(int(number))
    return numbers


def test_keys_of_several_tasks_keep_queue_and_order(processes: OurCluster) -> None:
    load = Load(processes.nameserver.address, "keyed", SinkSchema({"body": 0, "shardingKey": 1}, "keyed"))
    written = load.run(trouble_in(processes))
    by_queue = stored_bodies(processes, "keyed")
    with Producer("tests", nameserver=processes.nameserver.address) as producer:
        info = producer.publish_info("keyed")
    rows = 0
    for queue, bodies in by_queue.items():
        for key, numbers in first_appearances(bodies).items():
            assert queue == str(info.queue_of_key(key))
            assert numbers == sorted(numbers)
            rows += len(numbers)
    assert rows == sum(part.rows for part in written)
    assert sum(part.retries for part in written) > 0


def test_partitions_of_several_tasks_keep_their_order_in_each_queue(processes: OurCluster) -> None:
    load = Load(processes.nameserver.address, "unkeyed", SinkSchema({"body": 0}, "unkeyed"))
    written = load.run(trouble_in(processes))
    by_queue = stored_bodies(processes, "unkeyed")
    for bodies in by_queue.values():
        assert all(numbers == sorted(numbers) for numbers in first_appearances(bodies).values())
    assert len(set().union(*by_queue.values())) == sum(part.rows for part in written)
    assert sum(part.retries for part in written) > 0
    stored = sum(map(len, by_queue.values()))
    assert stored - sum(part.rows for part in written) <= sum(part.perhaps_repeated for part in written)
