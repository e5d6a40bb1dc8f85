"""`pyrmq topic schema`, and `PullConsumer.infer_schema` under it, on a cluster in the process."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from pyrmq_core import InvalidArgument, Message, NoRoute, ResponseError
from pyrmq_core import PullConsumer as AsyncPullConsumer
from pyrmq_core.blocking import EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.testing import PASS, Command, Peer, RequestCode
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
    topics = dict.fromkeys(BODIES, 2) | dict.fromkeys(("nothing", "tagged", "wide", "long"), 1)
    with EmbeddedCluster(brokers=2, topics=topics, settings={"enablePropertyFilter": "true"}) as cluster:
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
    counts: list[int] = []
    assert consumer.infer_schema("orders", sample=3, on_progress=counts.append).sampled == 12
    assert (counts[-1], counts) == (12, sorted(counts))
    with pytest.raises(ZeroDivisionError):
        consumer.infer_schema("orders", sample=3, on_progress=lambda count: count // 0)
    with pytest.raises(InvalidArgument, match="sample"):
        consumer.infer_schema("orders", sample=0)
    with pytest.raises(NoRoute, match="Nowhere"):
        consumer.infer_schema("Nowhere")


def test_the_sample_has_the_messages_that_pass_the_filter(cluster: EmbeddedCluster, consumer: PullConsumer) -> None:
    with Producer("setup", nameserver=cluster.nameserver) as producer:
        for number in range(10):
            producer.send(Message("tagged", b'{"of_a": 1}', tags="a", properties={"n": str(number)}))
        for _ in range(40):
            producer.send(Message("tagged", b'{"of_b": 1}', tags="b"))
    wait_readable(cluster.nameserver, "tagged", 50)
    assert consumer.infer_schema("tagged", sample=3).ddl == "of_b bigint"
    schema = consumer.infer_schema("tagged", sample=3, tags="a")
    assert (schema.ddl, schema.sampled >= 3) == ("of_a bigint", True)
    assert consumer.infer_schema("tagged", sample=100, sql="TAGS = 'a'").ddl == "of_a bigint"
    assert consumer.infer_schema("tagged", tags="c").form == "empty"
    with pytest.raises(ResponseError, match="SQL"):
        consumer.infer_schema("tagged", sql="TAGS = ")
    with pytest.raises(InvalidArgument, match="exclude each other"):
        consumer.infer_schema("tagged", tags="a", sql="n = '1'")


def test_a_schema_beyond_its_bounds_says_so(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    inner = {f"name{number}": number for number in range(1800)}
    body = json.dumps({f"o{number}": inner for number in range(8)}, separators=(",", ":"))
    with Producer("setup", nameserver=cluster.nameserver) as producer:
        producer.send(Message("wide", body.encode()))
    wait_readable(cluster.nameserver, "wide", 1)
    shown = terminal.run("topic", "schema", "wide", "--ddl")
    assert len(shown.stdout) <= 256 * 1024
    assert shown.stderr == "the bodies have more names than columns are made for: the rest stays in the body\n"
    assert terminal.run("topic", "schema", "orders").stderr == ""


def test_others_run_while_a_body_is_looked_into(cluster: EmbeddedCluster) -> None:
    """A body of a million values takes a second of work, in which the loop could not hear an interrupt."""
    with Producer("setup", nameserver=cluster.nameserver) as producer:
        producer.send(Message("long", b'{"a": [' + b"1," * 1_000_000 + b"1]}"))
    wait_readable(cluster.nameserver, "long", 1)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        nonlocal turns
        async with trio.open_nursery() as nursery, AsyncPullConsumer("look", nameserver=cluster.nameserver) as looking:
            rule = cluster.control(RequestCode.PULL_MESSAGE, noted, times=1)
            nursery.start_soon(take_turns)
            assert (await looking.infer_schema("long")).ddl == "a array<bigint>"
            rule.remove()
            nursery.cancel_scope.cancel()

    async def noted(request: Command, peer: Peer) -> Any:
        nonlocal turns
        turns = 0
        return PASS

    trio.run(main)
    assert turns > 100


def test_wrong_use(terminal: Terminal) -> None:
    assert terminal.run("topic", "schema", "orders", "--ddl", "--json").exit_code == 2
    failed = terminal.run("topic", "schema", "Nowhere")
    assert (failed.exit_code, failed.output.count("\n")) == (1, 1)
