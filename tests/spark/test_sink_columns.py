"""Effects of single columns on brokers: keys and queues keep their order through failures; delays are honoured."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from pyrmq_core import TopicPublishInfo
from pyrmq_core.blocking import EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_sink
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.commit_message import WriteAttempt
from pyrmq_spark.write.write_task import PartitionWrite
from tests.support.sink import cluster, stored, task
from tests.support.spark import wait_readable

__all__ = ["cluster"]

KEYED = SinkSchema({"body": 0, "shardingKey": 1}, "orders")
QUEUED = SinkSchema({"body": 0, "brokerName": 1, "queueId": 2}, "orders")


def keyed(first: int, count: int, keys: int = 7) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "body": pa.array([f"{number % keys} {number}".encode() for number in numbers]),
            "shardingKey": pa.array([f"key-{number % keys}" for number in numbers]),
        }
    )


def assert_each_key_in_one_queue_in_order(by_queue: dict[str, list[str]], rows: int) -> None:
    """Checks the order of first appearances: repeats may follow."""
    queue_of: dict[str, str] = {}
    seen: dict[str, list[int]] = {}
    for queue, bodies in by_queue.items():
        for key, number in (body.split() for body in bodies):
            assert queue_of.setdefault(key, queue) == queue
            if int(number) not in seen.setdefault(key, []):
                seen[key].append(int(number))
    assert sum(map(len, seen.values())) == rows
    for numbers in seen.values():
        assert numbers == sorted(numbers)


def test_a_key_stays_in_one_queue_in_order(cluster: EmbeddedCluster) -> None:
    written = task(cluster, schema=KEYED, maxBatchBytes="2000").run(iter([keyed(0, 1000), keyed(1000, 1000)]))
    assert written.rows == 2000
    wait_readable(cluster.nameserver, "orders", 2000)
    assert_each_key_in_one_queue_in_order(stored(cluster), 2000)


def test_the_broker_of_a_key_is_waited_for(cluster: EmbeddedCluster) -> None:
    """One broker dies under way and comes back: its keys stay with it, in their order, and no row is lost."""
    work = task(cluster, schema=KEYED, maxBatchBytes="2000", requestTimeoutMs="1000")
    restarted = threading.Event()

    def restart() -> None:
        cluster.start("broker-a")
        restarted.set()

    def batches() -> Iterator[pa.RecordBatch]:
        yield keyed(0, 1000)
        cluster.kill("broker-a")
        threading.Timer(1.5, restart).start()
        yield keyed(1000, 1000)

    written = work.run(batches())
    assert restarted.wait(10)
    assert written.rows == 2000
    wait_readable(cluster.nameserver, "orders", 2000)
    by_queue = stored(cluster)
    assert any("broker-a" in queue for queue in by_queue)
    assert_each_key_in_one_queue_in_order(by_queue, 2000)


def test_a_key_whose_broker_stays_away_fails_the_task(cluster: EmbeddedCluster) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield keyed(0, 100, 50)
        cluster.kill("broker-a")
        yield keyed(100, 100, 50)

    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_SEND_FAILED\] .*broker-a"):
        task(cluster, schema=KEYED, sendTimeoutMs="1500").run(batches())


def test_a_row_goes_to_the_queue_it_names(cluster: EmbeddedCluster) -> None:
    rows = pa.record_batch(
        {
            "body": pa.array([f"row {number}".encode() for number in range(90)]),
            "brokerName": pa.array(["broker-a", "broker-b", None] * 30),
            "queueId": pa.array([3, 0, None] * 30, pa.int32()),
        }
    )
    written = task(cluster, schema=QUEUED).run(iter([rows]))
    wait_readable(cluster.nameserver, "orders", 90)
    by_queue = stored(cluster)
    for first, queue in enumerate(("orders/broker-a/3", "orders/broker-b/0")):  # other rows may lie there, too
        named = [f"row {number}" for number in range(first, 90, 3)]
        assert [row for row in by_queue[queue] if row in named] == named
    assert sum(written.rows_by_queue.values()) == 90


def single_properties(cluster: EmbeddedCluster) -> list[str]:
    """Returns a list that is filled with the properties of each message that is sent by itself."""
    seen: list[str] = []

    async def note(request: Command, peer: Peer) -> Pass:
        seen.append(SendMessage.from_command(request).properties or "")
        return PASS

    cluster.control(RequestCode.SEND_MESSAGE_V2, note)
    return seen


def test_delayed_rows_go_one_by_one_beside_the_others(cluster: EmbeddedCluster) -> None:
    """In a batch they would be delivered at once."""
    seen = single_properties(cluster)
    bodies = pa.array([b"now", b"later", b"later", b"now"])
    rows = pa.record_batch({"body": bodies, "delayLevel": pa.array([None, 1, 2, None], pa.int32())})
    written = task(cluster, schema=SinkSchema({"body": 0, "delayLevel": 1}, "orders")).run(iter([rows]))
    assert (written.rows, written.requests) == (4, 3)
    assert sorted(decode_properties(properties)["DELAY"] for properties in seen) == ["1", "2"]
    wait_readable(cluster.nameserver, "orders", 3)  # level 1 is a second
    bodies_found = [body for queue_bodies in stored(cluster).values() for body in queue_bodies]
    assert bodies_found.count("now") == 2


def test_rows_with_a_priority_go_one_by_one_into_the_queues_of_their_numbers(cluster: EmbeddedCluster) -> None:
    """In a batch brokers ignore it."""
    seen = single_properties(cluster)
    priorities = [None, 2, 0, None, 9]
    rows = pa.record_batch(
        {"body": [str(number).encode() for number in priorities], "priority": pa.array(priorities, pa.int32())}
    )
    written = task(cluster, schema=SinkSchema({"body": 0, "priority": 1}, "orders")).run(iter([rows]))
    assert (written.rows, written.requests) == (5, 4)
    assert sorted(decode_properties(properties)["_SYS_MSG_PRIORITY_"] for properties in seen) == ["0", "2", "9"]
    wait_readable(cluster.nameserver, "orders", 5)
    queue_of = {body: name.rpartition("/")[2] for name, bodies in stored(cluster).items() for body in bodies}
    assert {body: queue for body, queue in queue_of.items() if body != "None"} == {"0": "0", "2": "2", "9": "3"}


def test_rows_of_lite_topics_go_one_by_one_into_the_queues_of_their_names(cluster: EmbeddedCluster) -> None:
    """In a batch they reach no lite topic."""
    seen = single_properties(cluster)
    names = [None, "session-2", "session-0", None, "session-2"]
    bodies = [f"{number} {name}".encode() for number, name in enumerate(names)]
    rows = pa.record_batch({"body": bodies, "liteTopic": pa.array(names, pa.string())})
    written = task(cluster, schema=SinkSchema({"body": 0, "liteTopic": 1}, "orders")).run(iter([rows]))
    assert (written.rows, written.requests) == (5, 4)
    wait_readable(cluster.nameserver, "orders", 5)
    with PullConsumer("g", nameserver=cluster.nameserver) as consumer:
        info = TopicPublishInfo("orders", consumer.message_queues("orders"), counter_start=0)
    place = {body: name for name, queue_bodies in stored(cluster).items() for body in queue_bodies}
    expected = {
        body.decode(): str(info.queue_of_key(name, is_lite=True))
        for body, name in zip(bodies, names, strict=True)
        if name
    }
    assert {body: name for body, name in place.items() if not body.endswith("None")} == expected
    assert sorted(decode_properties(properties)["__LITE_TOPIC"] for properties in seen) == sorted(filter(None, names))


def test_a_time_of_delivery_goes_with_its_row(cluster: EmbeddedCluster) -> None:
    seen = single_properties(cluster)
    at = datetime.now(UTC) + timedelta(hours=1)
    rows = pa.record_batch({"body": pa.array([b"x"]), "deliverAt": pa.array([at], pa.timestamp("us", "UTC"))})
    written = task(cluster, schema=SinkSchema({"body": 0, "deliverAt": 1}, "orders")).run(iter([rows]))
    assert written.rows == 1
    assert not any(stored(cluster).values())
    assert {decode_properties(text)["TIMER_DELIVER_MS"] for text in seen} == {str(int(at.timestamp() * 1000))}


@pytest.mark.parametrize("zone", ["GMT+8", "UTC+8", "Z", "-08", "+08:00", "PST", "Asia/Shanghai"])
def test_a_time_of_delivery_may_come_in_any_zone_of_a_session(cluster: EmbeddedCluster, zone: str) -> None:
    seen = single_properties(cluster)
    at = datetime.now(UTC) + timedelta(hours=1)
    instants = pa.array([at], pa.timestamp("us", "UTC"))
    times = pa.Array.from_buffers(pa.timestamp("us", zone), 1, instants.buffers())
    rows = pa.record_batch({"body": pa.array([b"x"]), "deliverAt": times})
    task(cluster, schema=SinkSchema({"body": 0, "deliverAt": 1}, "orders"), messageIds="content").run(iter([rows]))
    assert {decode_properties(text)["TIMER_DELIVER_MS"] for text in seen} == {str(int(at.timestamp() * 1000))}


# --- Topics that the write creates


TOPICS = SinkSchema({"body": 0, "topic": 1}, None)


def test_a_topic_of_the_column_is_created_by_the_task_that_meets_it() -> None:
    with EmbeddedCluster(brokers=2, settings={"autoCreateTopicEnable": "false"}) as cluster:
        rows = pa.record_batch({"body": pa.array([b"x", b"y"]), "topic": pa.array(["new_a", "new_b"])})
        written = task(cluster, schema=TOPICS, createTopic="normal", topicQueueNums="3").run(iter([rows]))
        with Producer("tests", nameserver=cluster.nameserver) as producer:
            assert [len(producer.message_queues(topic)) for topic in ("new_a", "new_b")] == [6, 6]
        assert written.rows == 2
        worker.close()


def test_a_topic_that_is_there_keeps_its_queues_and_a_namespace_is_part_of_the_name(cluster: EmbeddedCluster) -> None:
    rows = pa.record_batch({"body": pa.array([b"x"]), "topic": pa.array(["orders"])})
    task(cluster, schema=TOPICS, createTopic="normal", topicQueueNums="2").run(iter([rows]))
    with Producer("tests", nameserver=cluster.nameserver) as producer:
        assert len(producer.message_queues("orders")) == 8
        spaced = ConnectionOptions(name_server=cluster.nameserver, namespace="tenant")
        options = read_sink({"createTopic": "normal", "topicQueueNums": "2"})
        written = PartitionWrite(spaced, options, TOPICS, WriteAttempt("q", 0, 0, 0)).run(iter([rows]))
        assert len(producer.message_queues("tenant%orders")) == 4
    assert [queue.partition("/")[0] for queue in written.rows_by_queue] == ["orders"]


# --- Ids made of content


def ids_in(cluster: EmbeddedCluster, topic: str = "orders") -> Counter[str]:
    with PullConsumer("ids", nameserver=cluster.nameserver) as consumer:
        counts: Counter[str] = Counter()
        for queue, bounds in consumer.offset_bounds(consumer.message_queues(topic)).items():
            position = bounds.start
            while position < bounds.end:
                pulled = consumer.pull(queue, position)
                counts.update(f"{message.body.decode()} {message.msg_id}" for message in pulled.messages)
                position = pulled.next_offset
    return counts


def test_a_repeat_in_the_same_order_has_the_same_ids_and_in_another_loses_no_row(cluster: EmbeddedCluster) -> None:
    rows = keyed(0, 1000)
    for batches in ([rows], [rows.slice(0, 300), rows.slice(300)]):
        task(cluster, schema=KEYED, messageIds="content", batch=3).run(iter(batches))
    wait_readable(cluster.nameserver, "orders", 2000)
    once = ids_in(cluster)
    assert len(once) == 1000
    assert set(once.values()) == {2}
    task(cluster, schema=KEYED, messageIds="content", batch=3).run(iter([rows.take(pa.array(range(999, -1, -1)))]))
    wait_readable(cluster.nameserver, "orders", 3000)
    bodies_of: dict[str, set[str]] = {}
    for row_id in ids_in(cluster):
        body, _, msg_id = row_id.rpartition(" ")
        bodies_of.setdefault(msg_id, set()).add(body)
    assert all(len(bodies) == 1 for bodies in bodies_of.values())


def test_another_batch_has_other_ids(cluster: EmbeddedCluster) -> None:
    for batch in (3, 4):
        task(cluster, schema=KEYED, messageIds="content", batch=batch).run(iter([keyed(0, 100)]))
    wait_readable(cluster.nameserver, "orders", 200)
    assert len(ids_in(cluster)) == 200
