"""Java's clients, tools and brokers on our NameServer and broker."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core import Message, MessageExt, MessageQueue, decode
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from tests.support.apache import NEWEST, VERSIONS, WITH_LONG_NEWEST, boot_broker
from tests.support.java_programs import mqadmin, run_java

PROGRAM = Path(__file__).parent / "java" / "SendAndPull.java"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.mark.parametrize("version", [*VERSIONS, NEWEST])
def test_a_java_producer_sends_to_us_and_a_java_consumer_pulls_from_us(cluster: EmbeddedCluster, version: str) -> None:
    printed = run_java(version, PROGRAM, cluster.nameserver, "JavaTopic")
    sent = re.findall(r"^sent (\w+) (\S+) (\d+) (\d+)$", printed, re.MULTILINE)
    assert [status for status, *_ in sent] == ["SEND_OK"] * 22
    read = re.findall(r"^read (\d+) (\d+) (\S+) (\S+) (\S+) (.*)$", printed, re.MULTILINE)
    assert len(read) == 71
    expected = {f"single-{i}": f"plain {i}" for i in range(20)} | {f"batch-{i}": f"batched {i}" for i in range(50)}
    expected["large-0"] = ("large " * 2000).strip()
    assert {keys: body for _, _, keys, _, _, body in read} == expected
    sent_ids = {msg_id for _, ids, _, _ in sent for msg_id in ids.split(",")}
    assert sent_ids == {msg_id for *_, msg_id, _ in read}
    with PullConsumer("java-consumer", nameserver=cluster.nameserver, timeout=20) as consumer:
        queues = consumer.message_queues("JavaTopic")
        bodies = [message.body for queue in queues for message in everything(consumer, queue)]
        assert len(bodies) == 71
        assert b"large " * 2000 in bodies  # Java compressed it, we decompress
        ends = {queue: bounds.end for queue, bounds in consumer.offset_bounds(queues).items()}
        assert consumer.committed_offsets(queues) == ends  # committed by Java


@pytest.mark.parametrize("version", WITH_LONG_NEWEST)
def test_mqadmin_shows_our_cluster_and_its_routes(cluster: EmbeddedCluster, version: str) -> None:
    with Producer("orders", nameserver=cluster.nameserver, send_timeout=20) as producer:
        stored = producer.send(Message("orders", b"one"))
    clusters = mqadmin(version, "clusterList", nameserver=cluster.nameserver)
    for name, address in cluster.brokers.items():
        assert re.search(rf"DefaultCluster\s+{name}\s+0\s+{address}", clusters), clusters
    route = mqadmin(version, "topicRoute", "-t", "orders", nameserver=cluster.nameserver)
    name = stored.message_queue.broker_name
    assert f'"{name}"' in route
    assert cluster.brokers[name] in route


@pytest.mark.parametrize("version", [*(pytest.param(version, marks=pytest.mark.soak) for version in VERSIONS), NEWEST])
def test_a_java_broker_serves_beside_ours_on_our_nameserver(version: str) -> None:
    with (
        EmbeddedCluster(brokers=1) as cluster,
        boot_broker(version, cluster.nameserver, "java-broker") as broker,
        Producer("orders", nameserver=cluster.nameserver, send_timeout=20) as producer,
    ):
        mqadmin(version, "updateTopic", "-t", "shared", "-c", "DefaultCluster", nameserver=cluster.nameserver)
        wait_until_both_have(cluster.nameserver, "shared", {"broker-a", "java-broker"})
        stored = [producer.send(Message("shared", b"%d" % i)).message_queue.broker_name for i in range(32)]
        assert set(stored) == {"broker-a", "java-broker"}
        broker.kill()
        later = [producer.send(Message("shared", b"%d" % i)).message_queue.broker_name for i in range(8)]
        assert set(later) == {"broker-a"}


def wait_until_both_have(nameserver: str, topic: str, names: set[str]) -> None:
    deadline = time.monotonic() + 60
    while True:
        with Admin(nameserver=nameserver, timeout=20) as admin:
            if {data.broker_name for data in admin.route(topic).queue_datas} == names:
                return
        assert time.monotonic() < deadline, f"the route of {topic} does not name {names}"


def everything(consumer: PullConsumer, queue: MessageQueue) -> list[MessageExt]:
    with consumer.read(queue, consumer.min_offset(queue), consumer.max_offset(queue)) as pulls:
        return [message for pull in pulls for message in decode(pull)]
