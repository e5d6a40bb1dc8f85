"""Brokers that answer a task's pulls wrongly: each a stable condition that names queue and broker, no wrong row."""

import struct
import time
from collections.abc import Iterator

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.read.range_planner import QueueRange, RangePartition
from pyrmq_spark.source import RocketMQReader
from pyrmq_spark.spark_errors import RocketMQSparkError
from tests.support.spark import wait_readable

A0 = MessageQueue("orders", "broker-a", 0)
MESSAGES = 40
SCHEMA = source_schema(StructType([StructField("queueOffset", LongType()), StructField("body", StringType())]))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("orders", queues=1)
        with Producer("setup", nameserver=cluster.nameserver) as producer:
            producer.send_batch([Message("orders", f"row {n}".encode()) for n in range(MESSAGES)], queue=A0)
        wait_readable(cluster.nameserver, "orders", MESSAGES)
        yield cluster
        worker.close()


@pytest.fixture(scope="module")
def records(cluster: EmbeddedCluster) -> bytes:
    """The first ten messages as their broker stores them."""
    consumer = worker.consumer(ConnectionOptions(name_server=cluster.nameserver), "g")
    with consumer.read(A0, 0, 10) as pulls:
        return b"".join(bytes(pull.records) for pull in pulls)


def offsets(cluster: EmbeddedCluster, **options: str) -> list[int]:
    """Returns the offsets that a task yields of the whole queue."""
    settings = read_source({"topic": "orders"} | options)
    reader = RocketMQReader(ConnectionOptions(name_server=cluster.nameserver), settings, SCHEMA)
    batches = reader.read(RangePartition(QueueRange(A0, 0, MESSAGES)))
    return [row["queueOffset"] for batch in batches for row in batch.to_pylist()]


def reported(cluster: EmbeddedCluster, answer: PullAnswer, *, times: int | None = None, **options: str) -> str:
    """Returns the error of a task whose pulls get this answer."""

    async def answered(request: Command, peer: Peer) -> Command:
        return answer.to_command()

    control = cluster.control(RequestCode.PULL_MESSAGE, answered, times=times)
    try:
        with pytest.raises(RocketMQSparkError) as error:
            offsets(cluster, **options)
    finally:
        control.remove()
    assert offsets(cluster) == list(range(MESSAGES))
    return str(error.value)


def answer(next_offset: int, records: bytes, code: int = ResponseCode.SUCCESS) -> PullAnswer:
    return PullAnswer(code, next_begin_offset=next_offset, min_offset=0, max_offset=MESSAGES, records=records)


@pytest.mark.parametrize("next_offset", [-1, 0])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_answer_that_does_not_go_forward(
    cluster: EmbeddedCluster, records: bytes, next_offset: int, fail: str
) -> None:
    line = reported(cluster, answer(next_offset, records), failOnDataLoss=fail)
    assert line.startswith(
        "[RMQ_BAD_RECORD] orders/broker-a/0: broker-a answered a pull of orders/broker-a/0 at 0 with"
    )
    assert "does not go forward" in line


def test_an_answer_that_goes_backwards_later_on(cluster: EmbeddedCluster, records: bytes) -> None:
    """The first pull gets a true answer, later ones repeat messages that were already read."""
    seen: list[int] = []

    async def backwards(request: Command, peer: Peer) -> Command:
        offset = int(request.ext["queueOffset"])
        seen.append(offset)
        return answer(10 if offset == 0 else 5, records).to_command()

    control = cluster.control(RequestCode.PULL_MESSAGE, backwards)
    try:
        with pytest.raises(
            RocketMQSparkError, match=r"\[RMQ_BAD_RECORD\] .* at \d+ with next offset 5, which does not"
        ):
            offsets(cluster)
    finally:
        control.remove()
    assert seen[0] == 0
    assert len(seen) < 100


@pytest.mark.parametrize(
    "size",
    [0, -1, 7, 2**31 - 1, 100_000],
    ids=["none", "negative", "below its fields", "the largest", "beyond the answer"],
)
def test_a_record_that_lies_about_its_length(cluster: EmbeddedCluster, records: bytes, size: int) -> None:
    lying = struct.pack(">i", size) + records[4:]
    assert "[RMQ_BAD_RECORD] orders/broker-a/0: " in reported(cluster, answer(10, lying))


def test_a_body_that_lies_about_its_length(cluster: EmbeddedCluster, records: bytes) -> None:
    body = records.index(b"row 0") - 4
    lying = records[:body] + struct.pack(">i", 2**31 - 1) + records[body + 4 :]
    assert "[RMQ_BAD_RECORD] orders/broker-a/0: " in reported(cluster, answer(10, lying))


def test_half_a_record(cluster: EmbeddedCluster, records: bytes) -> None:
    assert "[RMQ_BAD_RECORD] orders/broker-a/0: " in reported(cluster, answer(10, records[:-1]))


def test_garbage_for_records(cluster: EmbeddedCluster) -> None:
    assert "[RMQ_BAD_RECORD] orders/broker-a/0: " in reported(cluster, answer(10, b"\xff" * 500))


def test_an_answer_without_its_offsets(cluster: EmbeddedCluster, records: bytes) -> None:
    async def bare(request: Command, peer: Peer) -> Command:
        return Command(ResponseCode.SUCCESS, {}, records)

    control = cluster.control(RequestCode.PULL_MESSAGE, bare)
    try:
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_\w+\] .*lacks the field nextBeginOffset"):
            offsets(cluster)
    finally:
        control.remove()


def test_records_of_offsets_that_were_not_requested(cluster: EmbeddedCluster, records: bytes) -> None:
    """Messages before a range's start and after its end belong to other ranges: batch topics return such."""

    async def too_much(request: Command, peer: Peer) -> Command:
        return answer(10, records).to_command()

    control = cluster.control(RequestCode.PULL_MESSAGE, too_much)
    try:
        settings = read_source({"topic": "orders"})
        reader = RocketMQReader(ConnectionOptions(name_server=cluster.nameserver), settings, SCHEMA)
        batches = reader.read(RangePartition(QueueRange(A0, 3, 7)))
        assert [row["queueOffset"] for batch in batches for row in batch.to_pylist()] == [3, 4, 5, 6]
    finally:
        control.remove()


@pytest.mark.parametrize("fail", [True, False])
def test_offsets_that_an_answer_passes_over_in_silence(
    cluster: EmbeddedCluster, records: bytes, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that has just deleted the log file of the first entries answers so."""

    async def passing_over(request: Command, peer: Peer) -> Command:
        return answer(20, records).to_command()

    cluster.control(RequestCode.PULL_MESSAGE, passing_over, times=1)
    if fail:
        with pytest.raises(
            RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] .*10 of the offsets 0 to \d+ of orders/broker-a/0"
        ):
            offsets(cluster)
    else:
        assert offsets(cluster, failOnDataLoss="false") == [*range(10), *range(20, MESSAGES)]
        assert "10 of the offsets 0 to" in caplog.text


def test_an_answer_with_messages_twice(cluster: EmbeddedCluster, records: bytes) -> None:
    line = reported(cluster, answer(10, records + records), times=1)
    assert "[RMQ_BAD_RECORD] orders/broker-a/0: broker-a answered 20 messages for the 10 offsets" in line


def test_a_body_that_changed_fails_the_task_or_is_given_as_it_is(cluster: EmbeddedCluster, records: bytes) -> None:
    damaged = records.replace(b"row 3", b"row 2")
    line = reported(cluster, answer(10, damaged), times=1)
    assert "[RMQ_BODY_DAMAGED] orders/broker-a/0: the body of the message at offset 3 of orders/broker-a/0" in line
    assert "verifyCrc=false" in line

    async def answered(request: Command, peer: Peer) -> Command:
        return answer(10, damaged).to_command()

    cluster.control(RequestCode.PULL_MESSAGE, answered, times=1)
    assert offsets(cluster, verifyCrc="false") == list(range(MESSAGES))


def test_a_body_that_swells_beyond_its_bound_is_named_and_passed(cluster: EmbeddedCluster) -> None:
    body, topic = bytes(300_000), "swelling"
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic(topic, queues=1)
    with Producer("setup", nameserver=cluster.nameserver) as producer:
        producer.send(Message(topic, body), queue=MessageQueue(topic, "broker-a", 0))
    wait_readable(cluster.nameserver, topic, 1)

    def sizes(**options: str) -> list[int]:
        settings = read_source({"topic": topic} | options)
        reader = RocketMQReader(ConnectionOptions(name_server=cluster.nameserver), settings, SCHEMA)
        batches = reader.read(RangePartition(QueueRange(MessageQueue(topic, "broker-a", 0), 0, 1)))
        return [len(row["body"]) for batch in batches for row in batch.to_pylist()]

    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BODY_TOO_LARGE\] .*offset 0 of swelling.*maxBodyBytes"):
        sizes(maxBodyBytes="200000")
    assert sizes() == [300_000]
    assert sizes(maxBodyBytes="200000", onUndecodableBody="keep")[0] < 10_000


def test_a_broker_that_stays_busy_is_waited_for_so_long_as_said(cluster: EmbeddedCluster) -> None:
    """A slave that may not serve says so (`slaveReadEnable`, 5.4.0); nothing is skipped."""
    requested: list[int] = []

    async def busy(request: Command, peer: Peer) -> Command:
        requested.append(int(request.ext["queueOffset"]))
        return refusal(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")

    control = cluster.control(RequestCode.PULL_MESSAGE, busy)
    began = time.monotonic()
    try:
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_REFUSED\] orders/broker-a/0: .*system busy"):
            offsets(cluster, pullTimeoutMs="500", failOnDataLoss="false")
    finally:
        control.remove()
    assert time.monotonic() - began >= 0.5
    assert set(requested) == {0}
    assert len(requested) >= 2


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, 29])
def test_a_broker_that_denies_a_queue_which_the_name_server_knows(
    cluster: EmbeddedCluster, fail: str, code: int
) -> None:
    """A slave that has not learned its master's topics yet answers so: no row is given up for that."""

    async def denied(request: Command, peer: Peer) -> Command:
        return refusal(code, "topic[orders] not exist")

    control = cluster.control(RequestCode.PULL_MESSAGE, denied)
    try:
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\] .*waited 0.3 s in vain.*not exist"):
            offsets(cluster, failOnDataLoss=fail, pullTimeoutMs="300")
    finally:
        control.remove()
    cluster.control(RequestCode.PULL_MESSAGE, denied, times=2)
    assert offsets(cluster, failOnDataLoss=fail) == list(range(MESSAGES))


@pytest.mark.parametrize("fail", [True, False])
def test_a_queue_that_is_gone_when_its_task_reads_it(cluster: EmbeddedCluster, fail: bool) -> None:
    queue = MessageQueue("short", "broker-a", 0)
    with Admin(nameserver=cluster.nameserver) as admin, Producer("setup", nameserver=cluster.nameserver) as producer:
        admin.create_topic("short", queues=1)
        producer.send(Message("short", b"row"), queue=queue)
        wait_readable(cluster.nameserver, "short", 1)
        admin.delete_topic("short")
    settings = read_source({"topic": "short", "failOnDataLoss": str(fail).lower()})
    task = RocketMQReader(ConnectionOptions(name_server=cluster.nameserver), settings, SCHEMA).read(
        RangePartition(QueueRange(queue, 0, 1))
    )
    if fail:
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_DATA_LOSS\] .*offsets 0 to 1 of short/.*is gone"):
            list(task)
    else:
        assert list(task) == []


def test_tags_that_brokers_take_for_one_another(cluster: EmbeddedCluster) -> None:
    """A broker compares the hashes of tags, and those of `Aa` and `BB` are one."""
    queue = MessageQueue("clash", "broker-a", 0)
    with Admin(nameserver=cluster.nameserver) as admin, Producer("setup", nameserver=cluster.nameserver) as producer:
        admin.create_topic("clash", queues=1)
        producer.send_batch([Message("clash", b"x", tags=("Aa", "BB")[n % 2]) for n in range(10)], queue=queue)
    wait_readable(cluster.nameserver, "clash", 10)
    settings = read_source({"topic": "clash", "tags": "BB"})
    task = RocketMQReader(ConnectionOptions(name_server=cluster.nameserver), settings, SCHEMA)
    batches = task.read(RangePartition(QueueRange(queue, 0, 10)))
    assert [row["queueOffset"] for batch in batches for row in batch.to_pylist()] == [1, 3, 5, 7, 9]
