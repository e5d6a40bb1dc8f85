"""`pyrmq topic schema`, and `PullConsumer.infer_schema` under it, on a cluster in the process."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import pytest

from pyrmq_core import InvalidArgument, Message, NoRoute
from pyrmq_core.blocking import EmbeddedCluster, Producer, PullConsumer
from tests.support.spark import wait_readable
from tests.support.terminal import Terminal

BODIES = {
    "orders": [
        json.dumps({"id": number, "price": number / 4, "to": {"city": "Bern"}}).encode() for number in range(40)
    ],
    "half": [b"no JSON", b'{"a": 1}', b"\xff", b'{"a": 9007199254740993.5, "b": [1, "x"]}'],
    "notes": [b"one", b"two"],
    "bytes": [b"\xff\x00", b"\xfe"],
    "large": [json.dumps({"text": "x" * 10_000}).encode()],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, topics={**dict.fromkeys(BODIES, 2), "nothing": 1}) as cluster:
        with Producer("setup", nameserver=cluster.nameserver) as producer:
            for topic, bodies in BODIES.items():
                for body in bodies:
                    producer.send(Message(topic, body))
        for topic, bodies in BODIES.items():
            wait_readable(cluster.nameserver, topic, len(bodies))
        yield cluster


@pytest.fixture(scope="module")
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


@pytest.fixture(scope="module")
def consumer(cluster: EmbeddedCluster) -> Iterator[PullConsumer]:
    with PullConsumer("look", nameserver=cluster.nameserver) as consumer:
        yield consumer


def test_the_columns_of_json(terminal: Terminal) -> None:
    shown = terminal.run("topic", "schema", "orders")
    *table, last = shown.stdout.splitlines()
    assert last == "40 of 40 bodies are JSON objects"
    assert [line.split() for line in table] == [
        ["column", "type", "bodies"],
        ["id", "bigint", "40"],
        ["price", "double", "40"],
        ["to", "struct<city:string>", "40"],
    ]
    assert json.loads(terminal.run("topic", "schema", "orders", "--json").stdout)[0] == {
        "column": "id",
        "type": "bigint",
        "bodies": 40,
        "jsonName": "id",
    }
    ddl = terminal.run("topic", "schema", "orders", "--ddl").stdout
    assert ddl == "id bigint, price double, to struct<city:string>\n"


@pytest.mark.parametrize(
    ("topic", "ddl", "said"),
    [
        ("half", "a decimal(38,18), b array<string>", "2 of 4 bodies are JSON objects"),
        ("notes", "text string", "2 of 2 bodies are texts"),
        ("bytes", "", "2 of 2 bodies are looked at, and have no columns: they are bytes"),
        ("large", "text string", "1 of 1 bodies are JSON objects"),
        ("nothing", "", "topic nothing has no body to look at"),
    ],
)
def test_other_bodies(terminal: Terminal, topic: str, ddl: str, said: str) -> None:
    assert len(zlib.compress(BODIES["large"][0])) < 4096 < len(BODIES["large"][0])  # stored compressed
    assert terminal.run("topic", "schema", topic, "--ddl").stdout.strip() == ddl
    assert terminal.run("topic", "schema", topic).stdout.splitlines()[-1] == said


def test_the_newest_of_each_queue_are_the_sample(consumer: PullConsumer) -> None:
    assert consumer.infer_schema("orders", sample=3).sampled == 12
    with pytest.raises(InvalidArgument, match="sample"):
        consumer.infer_schema("orders", sample=0)
    with pytest.raises(NoRoute, match="Nowhere"):
        consumer.infer_schema("Nowhere")


def test_wrong_use(terminal: Terminal) -> None:
    assert terminal.run("topic", "schema", "orders", "--ddl", "--json").exit_code == 2
    failed = terminal.run("topic", "schema", "Nowhere")
    assert (failed.exit_code, failed.output.count("\n")) == (1, 1)
