"""Batch topics (`queue.type=BatchCQ`) of 5.x: Java reads our batches, we read Java's; 4.9 refuses them."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core import InvalidArgument, Message, MessageExt, MessageQueue, NoRoute, OffsetRange, decode
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from tests.support.apache import ApacheCluster
from tests.support.batch_group_jobs import BatchGroupJobs
from tests.support.batch_topic_jobs import BatchTopicJobs
from tests.support.java_programs import run_java
from tests.support.spark import spark, wait_readable

__all__ = ["spark"]

JAVA = Path(__file__).parent / "java"
COUNT = 300
TAGS = ("TagA", "TagB", None)


@pytest.fixture
def topic() -> str:
    return f"batch-{uuid.uuid4().hex[:12]}"


def created(nameserver: str, topic: str) -> list[MessageQueue]:
    with Admin(nameserver=nameserver, timeout=20) as admin:
        admin.create_topic(topic, queues=1, batch=True)
    with PullConsumer("audit", nameserver=nameserver, timeout=20) as consumer:
        return list(consumer.message_queues(topic))


def some_messages(topic: str) -> list[Message]:
    return [
        Message(
            topic, f"body-{number}".encode(), tags=TAGS[number % 3], keys=f"k{number}", properties={"n": str(number)}
        )
        for number in range(COUNT)
    ]


@pytest.fixture(params=["5.4.0", "ours"])
def nameserver(request: pytest.FixtureRequest) -> Iterator[str]:
    """The NameServer of a real cluster of 5.x, and of our own."""
    if request.param == "ours":
        with EmbeddedCluster(brokers=1) as cluster:
            yield cluster.nameserver
    else:
        apache: ApacheCluster = request.getfixturevalue("apache_5")
        yield apache.nameserver.address


def test_java_reads_the_batches_we_write(nameserver: str, topic: str) -> None:
    """All, and those of one tag, by push and lite pull: each message once, with its own id, tag, keys and offset."""
    queue = created(nameserver, topic)[0]
    with Producer("g", nameserver=nameserver, send_timeout=20) as producer:
        assert producer.is_batch_topic(topic)
        sent = producer.send_batch(some_messages(topic), queue=queue)
        single = producer.send(Message(topic, b"body-alone", tags="TagA", keys="alone"), queue=queue)
    wait_readable(nameserver, topic, COUNT + 1)
    # Three records, one a tag, and a plain one; each result has its message's own place.
    assert sorted(result.queue_offset for result in sent) == list(range(COUNT))
    assert len({result.offset_msg_id for result in sent}) == 3
    target = {
        (result.queue_offset, result.msg_id, TAGS[n % 3] or "null", f"k{n}", f"body-{n}")
        for n, result in enumerate(sent)
    } | {(single.queue_offset, single.msg_id, "TagA", "alone", "body-alone")}
    for expression, tags in (("*", {"TagA", "TagB", "null"}), ("TagA", {"TagA"})):
        expected = {row for row in target if row[2] in tags}
        arguments = (nameserver, topic, expression, str(len(expected)))
        printed = run_java("5.4.0", JAVA / "ReadBatchTopic.java", *arguments, timeout=120)
        for how in ("push", "lite"):
            rows = [line.split(" ") for line in printed.splitlines() if line.startswith(how)]
            got = [(int(offset), msg_id, tag, keys, body) for _, offset, _, msg_id, tag, keys, body in rows]
            assert sorted(got) == sorted(expected), (how, expression)


def test_we_read_the_batches_java_writes(nameserver: str, topic: str) -> None:
    """Java sets a tag on each message and not on the batch: its own consumers that filter by tag get nothing."""
    queues = created(nameserver, topic)
    printed = run_java("5.4.0", JAVA / "SendAndPull.java", nameserver, topic, timeout=120)
    sent = re.findall(r"^sent (\w+) (\S+) (\d+) (\d+)$", printed, re.MULTILINE)
    assert [status for status, *_ in sent] == ["SEND_OK"] * 22
    expected = {f"batch-{n}": f"batched {n}" for n in range(50)}
    with PullConsumer("audit", nameserver=nameserver, timeout=20) as consumer:
        ends = consumer.max_offsets(queues)
        rows = [
            (message.keys, message.body.decode(), message.tags, message.sys_flag & 0xC0)
            for queue in queues
            for message in everything(consumer, queue, ends[queue], "batch")
        ]
        assert sum(len(everything(consumer, queue, ends[queue], "*")) for queue in queues) == 71
    assert sorted(rows) == sorted((keys, body, "batch", 0xC0) for keys, body in expected.items())


def everything(consumer: PullConsumer, queue: MessageQueue, end: int, tags: str) -> list[MessageExt]:
    with consumer.read(queue, 0, end, tags=tags) as pulls:
        return [message for pull in pulls for message in decode(pull, OffsetRange(pull.start, pull.next_offset))]


@pytest.mark.soak  # `tests/spark` has them on our brokers
class TestBatchTopicJobs(BatchTopicJobs):
    """Spark's jobs on batch topics, on 5.4.0."""

    @pytest.fixture
    def nameserver(self, apache_5: ApacheCluster) -> str:
        return apache_5.nameserver.address


class TestBatchGroupJobs(BatchGroupJobs):
    """Messages of batches that are given back, on 5.4.0."""

    @pytest.fixture
    def nameserver(self, apache_5: ApacheCluster) -> str:
        return apache_5.nameserver.address


# On 5.4.0 it is Java's consumer at Java's broker, with a batch that the first test has read there.
@pytest.mark.parametrize("nameserver", [pytest.param("5.4.0", marks=pytest.mark.soak), "ours"], indirect=True)
def test_javas_consumer_gives_back_the_message_that_failed(nameserver: str, topic: str) -> None:
    created(nameserver, topic)
    with Producer("g", nameserver=nameserver, send_timeout=20) as producer:
        producer.send_batch([Message(topic, str(number).encode()) for number in range(10)])
    printed = run_java("5.4.0", JAVA / "GiveBackOfBatch.java", nameserver, topic, "7", "11", timeout=120)
    rows = [line.split(" ") for line in printed.splitlines() if f" {topic} " in line]
    assert sorted(map(tuple, rows)) == sorted([(str(n), topic, "0") for n in range(10)] + [("7", topic, "1")])


@pytest.mark.soak
def test_a_4_9_broker_is_refused_before_anything_is_made(apache_4: ApacheCluster, topic: str) -> None:
    with Admin(nameserver=apache_4.nameserver.address, timeout=20) as admin:
        with pytest.raises(InvalidArgument, match=r"was not made: broker-a .* is older than 5\.0"):
            admin.create_topic(topic, batch=True)
        with pytest.raises(NoRoute):
            admin.route(topic)
        admin.create_topic(topic, queues=2)
    with Producer("g", nameserver=apache_4.nameserver.address, send_timeout=20) as producer:
        assert not producer.is_batch_topic(topic)
        results = producer.send_batch([Message(topic, b"x", tags="a"), Message(topic, b"y", tags="a")])
    assert len({result.msg_id for result in results}) == 2
    with PullConsumer("audit", nameserver=apache_4.nameserver.address, timeout=20) as consumer:
        wait_readable(apache_4.nameserver.address, topic, 2)
        pulled = consumer.pull(results[0].message_queue, results[0].queue_offset)
    assert [message.msg_id for message in pulled.messages] == [result.msg_id for result in results]


def test_what_is_there_is_not_made_again_as_something_else(apache_5: ApacheCluster, topic: str) -> None:
    with Admin(nameserver=apache_5.nameserver.address, timeout=20) as admin:
        admin.create_topic(topic, queues=1)
        with pytest.raises(InvalidArgument, match=r"exists on broker-a .* as a plain topic, and stays one"):
            admin.create_topic(topic, queues=1, batch=True)
        other = f"{topic}-b"
        admin.create_topic(other, queues=1, batch=True)
        admin.create_topic(other, queues=3, batch=True)
        assert {config.write_queue_nums for config in admin.topic_config(other).values()} == {3}
        assert {config.attributes["queue.type"] for config in admin.topic_config(other).values()} == {"BatchCQ"}
