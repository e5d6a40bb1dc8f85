"""One task's write, in this process, against our own brokers: the rows' queues, and that none is lost silently."""

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pytest
import trio

from pyrmq_core import MessageQueue, WriteSummary
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_sink
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.commit_message import PartitionWritten, WriteAttempt
from pyrmq_spark.write.write_task import PartitionWrite
from pyrmq_spark.write.writers import summary_line
from tests.support.sink import BODY, bodies, cluster, stored, task
from tests.support.spark import wait_readable

__all__ = ["cluster"]

BODY_AND_TOPIC = SinkSchema({"body": 0, "topic": 1}, None)
SEND = RequestCode.SEND_BATCH_MESSAGE


def rows_by_broker(written: list[PartitionWritten]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for part in written:
        for queue, count in part.rows_by_queue.items():
            rows[queue.split("/")[1]] += count
    return dict(rows)


def publish_queues(cluster: EmbeddedCluster) -> tuple[MessageQueue, ...]:
    with Producer("tests", nameserver=cluster.nameserver) as producer:
        return producer.message_queues("orders")


# --- Where rows go


def test_each_partition_has_the_queue_after_the_last_ones_on_another_broker(cluster: EmbeddedCluster) -> None:
    queues = publish_queues(cluster)
    assert len(queues) == 8
    interleaved = [queue for pair in zip(queues[:4], queues[4:], strict=True) for queue in pair]
    written = [task(cluster, partition, base=5).run(iter([bodies(0, 10)])) for partition in range(9)]
    used = [next(iter(part.rows_by_queue)) for part in written]
    assert used == [str(interleaved[(5 + partition + 1) % 8]) for partition in range(9)]


@pytest.mark.parametrize("selection", ["partition", "request"])
def test_few_partitions_spread_over_all_brokers(selection: str) -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": 8}) as cluster:
        tasks = (task(cluster, partition, base=70, queueSelection=selection) for partition in range(8))
        written = [work.run(iter([bodies(0, 20)])) for work in tasks]
        assert sorted(rows_by_broker(written).values()) == [40, 60, 60]
        worker.close()


def test_batches_of_a_stream_with_one_partition_take_one_broker_after_another() -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": 8}) as cluster:
        written = [task(cluster, batch=batch, base=batch).run(iter([bodies(0, 5)])) for batch in range(6)]
        assert sorted(rows_by_broker(written).values()) == [10, 10, 10]
        worker.close()


def test_a_route_that_grows_between_tasks_is_spread_over_as_well(cluster: EmbeddedCluster) -> None:
    """Brokers have different numbers of queues then: broker-a eight, broker-b four."""
    before = [task(cluster, partition).run(iter([bodies(0, 10)])) for partition in range(2)]
    cluster.stop("broker-b")
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("orders", queues=8)
    cluster.start("broker-b")
    worker.close()  # later tasks are another process's
    after = [task(cluster, partition, base=1).run(iter([bodies(0, 10)])) for partition in range(12)]
    assert rows_by_broker(before) == {"broker-a": 10, "broker-b": 10}
    assert rows_by_broker(after) == {"broker-a": 80, "broker-b": 40}
    assert rows_by_broker(after[:6]) == {"broker-a": 30, "broker-b": 30}


def test_keys_are_spread_in_the_order_of_java(cluster: EmbeddedCluster) -> None:
    keyed = SinkSchema({"body": 0, "shardingKey": 1}, "orders")
    rows = bodies(0, 50).append_column("shardingKey", pa.array([f"key {number}" for number in range(50)]))
    written = task(cluster, schema=keyed).run(iter([rows]))
    with Producer("tests", nameserver=cluster.nameserver) as producer:
        info = producer.publish_info("orders")
    assert written.rows_by_queue == Counter(str(info.queue_of_key(f"key {number}")) for number in range(50))


def test_a_partitions_rows_keep_their_order_over_many_requests(cluster: EmbeddedCluster) -> None:
    """The broker holds every other request for a while: another sent meanwhile would overtake it."""
    held: list[trio.Event] = []

    async def let_the_next_pass(request: Command, peer: Peer) -> Pass:
        if held:
            held.pop().set()
        else:
            held.append(trio.Event())
            with trio.move_on_after(0.05):
                await held[0].wait()
            held.clear()
        return PASS

    cluster.control(SEND, let_the_next_pass)
    written = task(cluster, maxBatchBytes="2000").run(iter([bodies(0, 700), bodies(700, 300)]))
    assert written.requests > 30
    assert (written.rows, written.retries, len(written.rows_by_queue)) == (1000, 0, 1)
    wait_readable(cluster.nameserver, "orders", 1000)
    assert stored(cluster) == {next(iter(written.rows_by_queue)): [f"row {number}" for number in range(1000)]}


def test_requests_take_queue_after_queue(cluster: EmbeddedCluster) -> None:
    written = task(cluster, queueSelection="request").run(bodies(first, 10) for first in range(0, 160, 10))
    assert sorted(written.rows_by_queue.values()) == [20] * 8


def test_each_topic_of_the_column_has_its_own_queue(cluster: EmbeddedCluster) -> None:
    rows = bodies(0, 6).append_column("topic", pa.array(["a", "b", "a", "c", "b", "a"]))
    written = task(cluster, schema=BODY_AND_TOPIC).run(iter([rows, rows]))
    counts = {name.partition("/")[0]: rows for name, rows in written.rows_by_queue.items()}
    assert counts == {"a": 6, "b": 4, "c": 2}


def test_a_partition_without_rows_connects_to_nothing() -> None:
    unreachable = PartitionWrite(
        ConnectionOptions(name_server="127.0.0.1:1"), read_sink({}), BODY, WriteAttempt("q", 0, 3, 0)
    )
    assert unreachable.run(iter([bodies(0, 0)])) == PartitionWritten(3, 0, writer="q")


# --- None is lost silently


def test_a_lost_acknowledgement_fails_the_write(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    add = WriteSummary.add
    swallowed = iter([True])

    def add_all_but_one(self: WriteSummary, *arguments: object) -> None:
        if not next(swallowed, False):
            add(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(WriteSummary, "add", add_all_but_one)
    with pytest.raises(
        RocketMQSparkError,
        match=r"\[RMQ_ROWS_UNACCOUNTED\] partition 0: 8000 rows were taken, but 4000 acknowledged",
    ):
        task(cluster).run(iter([bodies(0, 8000)]))


def test_a_refusal_fails_the_write_and_says_how_many_rows_are_stored(cluster: EmbeddedCluster) -> None:
    answered: list[int] = []

    async def refuse_the_third(request: Command, peer: Peer) -> Command | object:
        answered.append(request.code)
        return refusal(ResponseCode.MESSAGE_ILLEGAL, "not this one") if len(answered) == 3 else PASS

    cluster.control(SEND, refuse_the_third)  # type: ignore[arg-type]
    with pytest.raises(RocketMQSparkError) as error:
        task(cluster).run(iter([bodies(0, 9500)]))
    assert str(error.value).startswith("[RMQ_SEND_FAILED] partition 0: ")
    assert "not this one" in str(error.value)
    assert "(8000 rows of this partition were acknowledged before)" in str(error.value)


def test_a_wrong_row_fails_the_write_by_its_number_in_the_partition(cluster: EmbeddedCluster) -> None:
    wrong = pa.record_batch({"body": pa.array([b"x", b""])})
    with pytest.raises(RocketMQSparkError, match="partition 4: row 1001, column body: it is empty"):
        task(cluster, partition=4).run(iter([bodies(0, 1000), wrong]))


def test_properties_that_are_too_large_together_fail_the_write(cluster: EmbeddedCluster) -> None:
    both = SinkSchema({"body": 0, "tags": 1, "keys": 2}, "orders")
    rows = bodies(0, 3).append_column("tags", pa.array(["t", "t" * 20_000, "t"]))
    rows = rows.append_column("keys", pa.array(["k", "k" * 20_000, "k"]))
    with pytest.raises(
        RocketMQSparkError,
        match=r"partition 0: (one of the rows 10 to 12|row 11, ).*(properties take|bytes)",
    ):
        task(cluster, schema=both).run(iter([rows.slice(0, 1)] * 10 + [rows]))


def test_a_topic_that_is_never_created_fails_the_write() -> None:
    with EmbeddedCluster(settings={"autoCreateTopicEnable": "false"}) as cluster:
        with pytest.raises(RocketMQSparkError) as error:
            task(cluster, sendTimeoutMs="2000").run(iter([bodies(0, 1)]))
        worker.close()
    assert str(error.value).startswith("[RMQ_TOPIC_NOT_FOUND] partition 0: ")
    assert "orders" in str(error.value)


def test_a_killed_broker_is_replaced_and_no_row_is_lost(cluster: EmbeddedCluster) -> None:
    """The kill falls between the first and the last acknowledgement."""
    work = task(cluster, maxBatchBytes="5000", requestTimeoutMs="1000")
    killed = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 10_000, 500):
            if work.summary.messages_by_queue and not killed.is_set():
                first = next(iter(work.summary.messages_by_queue))
                cluster.kill(first.broker_name)
                killed.set()
            yield bodies(start, 500)

    written = work.run(batches())
    assert killed.is_set()
    assert (written.rows, written.retries >= 1, len(written.rows_by_queue)) == (10_000, True, 2)
    dead = next(name for name in ("broker-a", "broker-b") if name not in cluster.brokers)
    cluster.start(dead)
    wait_readable(cluster.nameserver, "orders", 10_000)
    by_queue = stored(cluster)
    assert set(chain(*by_queue.values())) == {f"row {number}" for number in range(10_000)}
    extra = sum(map(len, by_queue.values())) - 10_000
    assert 0 <= extra <= written.perhaps_repeated
    for bodies_of_queue in by_queue.values():
        numbers = [int(body.removeprefix("row ")) for body in bodies_of_queue]
        assert numbers == sorted(numbers)


def test_a_broker_that_never_answers_costs_one_attempt(cluster: EmbeddedCluster) -> None:
    async def never(request: Command, peer: Peer) -> Command | None:
        await trio.sleep_forever()

    first = publish_queues(cluster)[4]  # the second of the interleaved queues
    cluster.control(SEND, never, server=first.broker_name)
    written = task(cluster, requestTimeoutMs="2000").run(iter([bodies(0, 100)]))
    (used,) = written.rows_by_queue
    assert first.broker_name not in used
    assert (written.rows, written.retries, written.perhaps_repeated) == (100, 1, 100)


def test_without_another_broker_the_write_fails_naming_the_dead_one(cluster: EmbeddedCluster) -> None:
    work = task(cluster, maxBatchBytes="5000", requestTimeoutMs="1000", sendTimeoutMs="4000")

    def batches() -> Iterator[pa.RecordBatch]:
        yield bodies(0, 3000)
        for name in list(cluster.brokers):
            cluster.kill(name)
        yield bodies(3000, 3000)

    with pytest.raises(RocketMQSparkError) as error:
        work.run(batches())
    assert str(error.value).startswith("[RMQ_SEND_FAILED] partition 0: ")
    assert f"({work.summary.messages} rows of this partition were acknowledged before)" in str(error.value)
    assert 0 < work.summary.messages < 6000
    assert "broker-" in str(error.value)


# --- The worker's clients, and the line at the end


def test_a_worker_keeps_its_clients_between_tasks(cluster: EmbeddedCluster) -> None:
    connection = ConnectionOptions(name_server=cluster.nameserver)
    first = worker.producer(connection, read_sink({"sendTimeoutMs": "1000"}))
    assert worker.producer(connection, read_sink({"sendTimeoutMs": "1000"})) is first
    assert worker.consumer(connection, "g") is worker.consumer(connection, "g")
    second = worker.producer(connection, read_sink({"sendTimeoutMs": "2000"}))
    assert second is not first
    assert len(second.message_queues("orders")) == 8


def test_a_worker_keeps_few_clients(cluster: EmbeddedCluster) -> None:
    first = worker.consumer(ConnectionOptions(name_server=cluster.nameserver), "g")
    assert first.message_queues("orders")
    for number in range(worker.MAX_CLIENTS):
        worker.consumer(ConnectionOptions(name_server=cluster.nameserver, poll_name_server_interval=60.0 + number), "g")
    again = worker.consumer(ConnectionOptions(name_server=cluster.nameserver), "g")
    assert again is not first
    assert again.message_queues("orders")


def test_rows_without_a_slave_are_stored_and_counted_by_their_status() -> None:
    """Each try of a request that is to be stored safely is stored: the rows are there once a try."""
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "20"}
    try:
        with EmbeddedCluster(topics={"orders": 4}, settings=settings) as cluster:
            written = task(cluster).run(iter([bodies(0, 30)]))
            assert (written.rows, written.rows_by_status) == (30, {"FLUSH_SLAVE_TIMEOUT": 30})
            assert summary_line([written]).endswith("; 0 retries; stored, but FLUSH_SLAVE_TIMEOUT: 30")
            safe = task(cluster, partition=1, retryAnotherBrokerWhenNotStoreOK="true").run(iter([bodies(30, 5)]))
            assert (safe.rows, safe.retries, safe.perhaps_repeated) == (5, 2, 5)
            assert safe.rows_by_status == {"FLUSH_SLAVE_TIMEOUT": 5}
            wait_readable(cluster.nameserver, "orders", 30 + 3 * 5)
    finally:
        worker.close()


def test_the_line_at_the_end_counts_rows_queues_and_repetitions() -> None:
    written = [
        PartitionWritten(0, 30, 300, 3, rows_by_queue={"t/a/0": 30}, rows_by_status={"SEND_OK": 30}),
        PartitionWritten(
            1,
            20,
            200,
            2,
            retries=1,
            perhaps_repeated=10,
            rows_by_queue={"t/a/0": 5, "t/b/1": 15},
            rows_by_status={"SEND_OK": 10, "FLUSH_DISK_TIMEOUT": 10},
        ),
        PartitionWritten(2, 0),
    ]
    assert summary_line(written) == (
        "50 rows (500 bytes) acknowledged in 5 requests of 3 tasks; rows per queue: t/a/0: 35, t/b/1: 15; 1 retries; "
        "stored, but FLUSH_DISK_TIMEOUT: 10; 10 rows perhaps stored twice"
    )
