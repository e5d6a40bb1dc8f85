"""`pyrmq topic manifest`: two manifests of one topic are shown, and healed into the older one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyrmq_core import ManifestError, MessageQueue, StoredRange, commit_messages, next_record
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from tests.support.terminal import Terminal

MANIFEST = "orders-committed"
A, B = MessageQueue(MANIFEST, "broker-a", 0), MessageQueue(MANIFEST, "broker-b", 0)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, topics={"orders": 1}) as cluster:
        yield cluster


@pytest.fixture
def consumer(cluster: EmbeddedCluster) -> Iterator[PullConsumer]:
    with PullConsumer("audit", nameserver=cluster.nameserver) as consumer:
        yield consumer


@pytest.fixture
def producer(cluster: EmbeddedCluster) -> Iterator[Producer]:
    with Producer("writer", nameserver=cluster.nameserver) as producer:
        yield producer


def commit(consumer: PullConsumer, producer: Producer, queue: MessageQueue, writer: str, number: int) -> None:
    """Commits a batch of one row, as a driver does that knows this manifest alone."""
    end = consumer.manifest_end(MANIFEST, queue=queue)
    stored = StoredRange(MessageQueue("orders", queue.broker_name, 0), number, 1, "id", "id")
    record = next_record(
        writer,
        number,
        [stored],
        commit=writer,
        seen=end.end,
        decided=end.decided,
        without_decided=end.without_decided,
    )
    assert record is not None
    for message in commit_messages(record, MANIFEST):
        producer.send(message, queue=queue)


def test_two_manifests_are_healed_into_the_older_one(
    cluster: EmbeddedCluster, consumer: PullConsumer, producer: Producer
) -> None:
    """A batch that both have counts once, and what only the newer one has is taken over."""
    terminal = Terminal(cluster.nameserver)
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic(MANIFEST, queues=1, broker="broker-a")
        for number in range(2):
            commit(consumer, producer, A, "daily", number)
        admin.create_topic(MANIFEST, queues=1, broker="broker-b")
        admin.topics.set_order(MANIFEST, {"broker-b": 1})  # as the driver that made it
        for writer, number in (("daily", 1), ("daily", 2), ("another", 0)):
            commit(consumer, producer, B, writer, number)
        with pytest.raises(ManifestError, match=r"has 2 queues .*; pyrmq topic manifest orders-committed shows"):
            consumer.read_manifest(MANIFEST)
        rows = terminal.rows("topic", "manifest", MANIFEST)
        assert [(row["brokerName"], row["records"], row["counts"]) for row in rows] == [
            ("broker-a", 2, True),
            ("broker-b", 3, False),
        ]
        text = terminal.text("topic", "manifest", MANIFEST, "--heal")
        assert "2 batches were taken over, 1 were repeats and are left out" in text
        commits = consumer.read_manifest(MANIFEST).commits
        assert [(commit.writer, commit.number, commit.ranges[0].queue.broker_name) for commit in commits] == [
            ("daily", 0, "broker-a"),
            ("daily", 1, "broker-a"),
            ("daily", 2, "broker-b"),
            ("another", 0, "broker-b"),
        ]
        assert admin.topics.order(MANIFEST) == {"broker-a": 1}
        assert {data.broker_name: data.read_queue_nums for data in admin.route(MANIFEST).queue_datas} == {
            "broker-a": 1,
            "broker-b": 0,
        }
        assert "0 batches were taken over" in terminal.text("topic", "manifest", MANIFEST, "--heal")  # again
        assert terminal.rows("topic", "list") == [{"topic": "orders"}]
        assert {"topic": MANIFEST} in terminal.rows("topic", "list", "--all")


def test_a_manifest_that_is_not_there(cluster: EmbeddedCluster) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic(MANIFEST, queues=0, broker="broker-b")
    error = Terminal(cluster.nameserver).refused(1, "topic", "manifest", MANIFEST)
    assert error.startswith("Error: orders-committed has no queue")


def test_an_order_configuration_is_restored_and_a_deletion_ends(cluster: EmbeddedCluster) -> None:
    terminal = Terminal(cluster.nameserver)
    terminal.text("topic", "order", "orders", "broker-a:1", "broker-b:1")
    assert terminal.rows("topic", "order", "orders", "--restore") == [
        {"brokerName": "broker-a", "queues": 1},
        {"brokerName": "broker-b", "queues": 1},
    ]
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.delete_topic("orders")
        admin.topics.set_order("orders", {"broker-a": 1})  # as an earlier release left it
        terminal.text("topic", "delete", "orders", "--yes")
        assert admin.topics.order("orders") is None
    assert "nothing is deleted" in terminal.refused(1, "topic", "delete", "orders", "--yes")
