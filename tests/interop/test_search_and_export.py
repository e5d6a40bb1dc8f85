"""`pyrmq search` on Apache RocketMQ 5.4.0."""

from __future__ import annotations

import json

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, Producer
from tests.support.apache import ApacheCluster
from tests.support.terminal import Terminal, soon

TOPIC = "SearchedOrders"
COUNT = 200


@pytest.fixture(scope="module")
def terminal(apache_5: ApacheCluster) -> Terminal:
    """A terminal, and a topic whose bodies are JSON, every tenth is none, every fiftieth is stored compressed."""
    address = apache_5.nameserver.address
    terminal = Terminal(address)
    with Admin(nameserver=address) as admin, Producer("G", nameserver=address) as producer:
        admin.create_topic(TOPIC, queues=2)
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
