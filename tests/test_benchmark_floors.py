"""The floors of reads in benchmarks: plain pulls that drop a topic, and the source whose rows are ready."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from benchmarks.peers.spark_jobs import READY
from benchmarks.support import raw
from benchmarks.support.pulls import FIRST_OPAQUE, Answers, lane_and_offset, pulled
from benchmarks.support.ready_table import SCHEMA, ReadyTable
from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_spark import source

BODY = StructType([StructField("body", BinaryType())])
ANSWERS = [(0, 3), (7, 5), (0, 64)]  # lane and next offset
OPTIONS = {"rows": "20000", "batchRows": "3000", "case": "100"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


def fill(cluster: EmbeddedCluster, topic: str, *, batch: bool) -> str:
    """Puts 1,001, 0, 33 and 32 messages into the queues, at most 100 a request; returns the broker's address."""
    with Admin(nameserver=cluster.nameserver) as admin, Producer("g", nameserver=cluster.nameserver) as producer:
        admin.create_topic(topic, queues=4, batch=batch)
        for number, messages in enumerate((1001, 0, 33, 32)):
            queue = MessageQueue(topic, "broker-a", number)
            for first in range(0, messages, 100):
                request = [Message(topic, b"x" * 200)] * min(100, messages - first)
                producer.send_batch(request, queue=queue)
    return cluster.brokers["broker-a"]


@pytest.mark.parametrize("batch", [False, True], ids=["plain", "batch"])
def test_plain_pulls_receive_every_message_of_a_topic(cluster: EmbeddedCluster, *, batch: bool) -> None:
    address = fill(cluster, f"pulled-{batch}", batch=batch)
    assert [sum(pulled(address, f"pulled-{batch}", [queue])) for queue in range(4)] == [1001, 0, 33, 32]
    assert sum(pulled(address, f"pulled-{batch}", range(4))) == 1066


def test_plain_pulls_follow_answers_of_all_sizes(cluster: EmbeddedCluster) -> None:
    """A broker's answer has 256 KiB at most: 32 small messages, then 13 of 20 KB."""
    queue = MessageQueue("uneven", "broker-a", 0)
    with Admin(nameserver=cluster.nameserver) as admin, Producer("g", nameserver=cluster.nameserver) as producer:
        admin.create_topic("uneven", queues=1)
        for body in (b"x", b"y" * 20_000):
            producer.send_batch([Message("uneven", body)] * 64, queue=queue)
    assert sum(pulled(cluster.brokers["broker-a"], "uneven", [0])) == 128


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_answers_are_counted_however_they_are_cut(size: int) -> None:
    """An answer counts when its last byte has come."""
    data = b"".join(answer(lane, offset, b"x" * (offset * 100)) for lane, offset in ANSWERS)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        answers, frames = Answers(ours), []
        for at in range(0, len(data), size):
            theirs.sendall(data[at : at + size])
            complete = answers.receive()
            frames += complete
            assert len(complete) == sum(at < end <= at + size for end in ends(data))
        assert frames == ANSWERS
        theirs.close()
        with pytest.raises(ConnectionResetError):
            answers.receive()


def answer(lane: int, offset: int, body: bytes) -> bytes:
    fields = b'{"nextBeginOffset":"%d","maxOffset":"99"}' % offset
    header = b'{"code":0,"extFields":%s,"flag":1,"opaque":%d,"version":479}' % (fields, FIRST_OPAQUE + lane)
    return raw.PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


def ends(data: bytes) -> list[int]:
    """Returns where each answer ends."""
    offsets, at = [], 0
    while at < len(data):
        at += 4 + raw.PREFIX.unpack_from(data, at)[0]
        offsets.append(at)
    return offsets


def test_an_answer_without_messages_is_an_error() -> None:
    header = answer(2, 7, b"")[raw.PREFIX.size :]
    assert lane_and_offset(header) == (2, 7)
    with pytest.raises(RuntimeError, match="a pull was answered"):
        lane_and_offset(header.replace(b'"code":0', b'"code":19'))


def test_the_ready_source_yields_as_many_rows_as_the_read_that_it_stands_for() -> None:
    reader = ReadyTable(dict(OPTIONS)).reader(BODY)
    assert [batch_rows(reader.read(task)) for task in reader.partitions()] == [[3000, 2000]] * 4
    few = ReadyTable(OPTIONS | {"rows": "1000"}).reader(BODY)
    assert [batch_rows(few.read(task)) for task in few.partitions()] == [[1000]]


def test_a_stream_of_ready_rows_has_as_many_batches_as_are_wanted() -> None:
    reader = ReadyTable(OPTIONS | {"rows": "30", "batches": "3"}).streamReader(BODY)
    start, rows = reader.initialOffset(), list[list[list[int]]]()
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
        rows.append([batch_rows(reader.read(task)) for task in reader.partitions(start, end)])
        start = end
    assert rows == [[[10]]] * 3


def test_a_ready_source_that_also_pulls_yields_the_rows_of_the_topic(cluster: EmbeddedCluster) -> None:
    options = OPTIONS | {"broker": fill(cluster, "both", batch=False), "topic": "both"}
    reader = ReadyTable(options).reader(BODY)
    assert [sum(batch_rows(reader.read(task))) for task in reader.partitions()] == [1001, 0, 33, 32]


def batch_rows(batches: Iterator[object]) -> list[int]:
    """Returns the rows of each record batch."""
    return [batch.num_rows for batch in batches if isinstance(batch, pa.RecordBatch)]


def test_the_ready_source_is_that_of_the_jobs_with_the_columns_of_ours() -> None:
    assert ReadyTable.name() == READY
    assert SCHEMA == source.SCHEMA


def test_the_ready_source_loads_nothing_of_ours() -> None:
    program = "import sys, benchmarks.support.ready_table; print([name for name in sys.modules if 'pyrmq' in name])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60).strip() == "[]"
