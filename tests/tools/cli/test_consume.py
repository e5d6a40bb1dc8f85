"""`pyrmq consume` as a process: what it prints, what it acknowledges, and what it leaves to its group."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.testing import Command, Peer, RequestCode, refusal
from tests.support.commands import ended, ran, started, with_closed_pipe


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, settings={"enablePropertyFilter": "true"}) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own: one queue with the messages 0 to 4, the even ones tagged and with an amount."""
    name = re.sub(r"\W", "_", request.node.name)
    with Admin(nameserver=cluster.nameserver) as admin, Producer("G", nameserver=cluster.nameserver) as producer:
        admin.create_topic(name, queues=1)
        for number in range(5):
            even = {"tags": "even", "properties": {"amount": str(number)}} if number % 2 == 0 else {}
            producer.send(Message(name, b"%d" % number, **even))  # type: ignore[arg-type]
    return name


def committed(cluster: EmbeddedCluster, topic: str, group: str = "g") -> int | None:
    with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
        (queue,) = consumer.message_queues(topic)
        return consumer.committed(queue)


def consume(cluster: EmbeddedCluster, topic: str, *options: str, home: Path) -> list[str]:
    words = ("consume", topic, "-g", "g", "--from", "earliest", "-n", cluster.nameserver, *options)
    status, output, errors = ran(*words, home=home)
    assert (status, errors) == (0, [])
    return output.splitlines()


def test_what_is_printed_is_acknowledged_and_no_more(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    first = consume(cluster, topic, "--max", "2", "--orderly", home=tmp_path)
    assert [line.split()[0] for line in first] == ["broker-a/0@0", "broker-a/0@1"]
    assert committed(cluster, topic) == 2
    rest = consume(cluster, topic, "--max", "3", "--json", home=tmp_path)
    assert [json.loads(line)["body"] for line in rest] == ["2", "3", "4"]
    assert json.loads(rest[0])["tags"] == "even"
    assert committed(cluster, topic) == 5


def test_tags_choose(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    lines = consume(cluster, topic, "--tags", "even || odd", "--max", "3", home=tmp_path)
    assert [line.split()[-1] for line in lines] == ["0", "2", "4"]


def test_a_form_chooses_what_is_printed(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    lines = consume(cluster, topic, "-o", "{queueOffset}: {body}", "--max", "5", home=tmp_path)
    assert lines == [f"{number}: {number}" for number in range(5)]


def test_sql_chooses(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    lines = consume(cluster, topic, "--sql", "amount > 1", "--max", "2", home=tmp_path)
    assert [line.split()[-1] for line in lines] == ["2", "4"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stores_what_was_printed(
    cluster: EmbeddedCluster, topic: str, tmp_path: Path, number: signal.Signals
) -> None:
    process = started("consume", topic, "-g", "g", "--from", "earliest", "-n", cluster.nameserver, home=tmp_path)
    assert process.stdout is not None
    assert [process.stdout.readline().split()[-1] for _ in range(5)] == ["0", "1", "2", "3", "4"]
    with Producer("G", nameserver=cluster.nameserver) as producer:
        producer.send(Message(topic, b"5"))
    assert process.stdout.readline().split()[-1] == "5"  # the five before it are acknowledged
    process.send_signal(number)
    assert ended(process) == (128 + number, "", [])
    assert committed(cluster, topic) in (5, 6)


def test_what_was_not_printed_is_not_acknowledged(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    words = ("consume", topic, "-g", "g", "--from", "earliest", "-n", cluster.nameserver)
    assert ended(with_closed_pipe(*words, home=tmp_path)) == (141, "", [])
    lines = consume(cluster, topic, "--max", "5", home=tmp_path)
    assert sorted(line.split()[-1] for line in lines) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--tags", "a", "--sql", "b = 1"), "exclude each other"),
        (("--from", "yesterday"), "earliest, latest or an ISO-8601 time"),
        (("--sql", "amount >"), "amount >"),
    ],
)
def test_wrong_options_are_named(cluster: EmbeddedCluster, tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    with Producer("G", nameserver=cluster.nameserver) as producer:
        producer.send(Message("Wrong", b"body"))
    status, output, errors = ran("consume", "Wrong", "-g", "g", "-n", cluster.nameserver, *options, home=tmp_path)
    assert (status > 0, output) == (True, "")
    assert text in errors[-1]


def test_a_topic_that_is_not_there_is_an_error(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """A consumer in a program waits for it."""
    status, output, errors = ran("consume", "Nowhere", "-g", "g", "-n", cluster.nameserver, home=tmp_path)
    assert (status, output) == (1, "")
    assert "Nowhere" in errors[0]


@pytest.mark.parametrize(
    ("code", "refused", "work"),
    [
        (RequestCode.HEART_BEAT, 16, "HEART_BEAT"),
        (RequestCode.PULL_MESSAGE, 16, "PULL_MESSAGE"),
        (RequestCode.UPDATE_CONSUMER_OFFSET, 16, "UPDATE_CONSUMER_OFFSET"),
    ],
)
def test_a_refusal_that_waiting_does_not_help_ends_it(
    cluster: EmbeddedCluster, topic: str, tmp_path: Path, code: RequestCode, refused: int, work: str
) -> None:
    async def refuse(request: Command, peer: Peer) -> Command:
        return refusal(refused, "the words of the test")

    rule = cluster.control(code, refuse)
    try:
        words = ("consume", topic, "-g", "refused", "--from", "earliest", "-n", cluster.nameserver)
        status, _, errors = ran(*words, home=tmp_path)
    finally:
        rule.remove()
    assert status == 1
    assert (work in errors[-1], "the words of the test" in errors[-1]) == (True, True)


def test_a_group_that_does_not_exist_ends_it(tmp_path: Path) -> None:
    with EmbeddedCluster(topics={"orders": 1}, settings={"autoCreateSubscriptionGroup": "false"}) as cluster:
        words = ("consume", "orders", "-g", "nobodys", "-n", cluster.nameserver)
        status, output, errors = ran(*words, home=tmp_path)
    assert (status, output) == (1, "")
    assert "create the group (pyrmq group create nobodys)" in errors[-1]
