"""`pyrmq search`, `pyrmq export` and `pyrmq import` on Apache RocketMQ 5.4.0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, Producer
from tests.support.apache import ApacheCluster
from tests.support.terminal import Terminal, soon

TOPIC = "SearchedOrders"
COUNT = 200
FORMATS = ("jsonl", "parquet", "csv")


@pytest.fixture(scope="module")
def terminal(apache_5: ApacheCluster) -> Terminal:
    """A terminal, and a topic whose bodies are JSON, every tenth is none, every fiftieth is stored compressed."""
    address = apache_5.nameserver.address
    terminal = Terminal(address)
    with Admin(nameserver=address) as admin, Producer("G", nameserver=address) as producer:
        for topic in (TOPIC, *(f"Copied-{form}" for form in FORMATS)):
            admin.create_topic(topic, queues=2)
        for number in range(COUNT):
            text = json.dumps({"id": 2**60 + number, "more": "x" * (5000 if number % 50 == 1 else 1)})
            body = b"plain %d" % number if number % 10 == 0 else text.encode()
            producer.send(Message(TOPIC, body, tags="odd" if number % 2 else "even", keys=f"k{number}"))
    soon(lambda: len(terminal.text("tail", TOPIC, "--json").splitlines()) == COUNT)
    return terminal


def test_messages_are_found_by_what_is_in_them(terminal: Terminal) -> None:
    def found(*options: str) -> list[str]:
        return sorted(terminal.run("search", TOPIC, "--since", "1h", "-o", "{keys}", *options).stdout.split())

    assert found("--where", f"json.id == {2**60 + 101}") == ["k101"]
    assert found("--contains", f'"id": {2**60 + 51},', "--tags", "odd") == ["k51"]
    assert found("--contains", f'"id": {2**60 + 51},', "--tags", "even") == []
    assert found("--regex", "^plain 1[0-9]0$") == [f"k1{number}0" for number in range(10)]
    assert len(found("--contains", "x" * 5000)) == 4


@pytest.mark.parametrize("form", FORMATS)
def test_a_round_trip_keeps_every_message(terminal: Terminal, tmp_path: Path, form: str) -> None:
    target, copy = str(tmp_path / f"orders.{form}"), f"Copied-{form}"
    assert f"{COUNT} messages of" in terminal.text("export", TOPIC, "--since", "1h", "--format", form, "--to", target)
    terminal.text("import", target, "--topic", copy)

    def lines(topic: str) -> list[str]:
        fields = "{brokerName} {queueId} {queueOffset} {tags} {keys} {body}"
        return sorted(terminal.text("tail", topic, "-o", fields).splitlines())

    soon(lambda: len(lines(copy)) == COUNT)
    assert lines(copy) == lines(TOPIC)
