"""`pyrmq dev` for programs: its addresses as one JSON object, and topics that are there when it serves."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.commands import ended, ran, started
from tests.support.terminal import Terminal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_addresses_as_json_and_topics(tmp_path: Path, number: signal.Signals) -> None:
    topics = ("--topic", "orders:3", "--topic", "plain")
    process = started("dev", "--port", "0", "--brokers", "2", *topics, "--json", home=tmp_path)
    assert process.stdout is not None
    addresses = json.loads(process.stdout.readline())
    assert list(addresses) == ["nameserver", "brokers", "slaves", "directory", "page"]
    assert (list(addresses["brokers"]), addresses["slaves"], addresses["page"]) == (["broker-a", "broker-b"], {}, None)
    terminal = Terminal(addresses["nameserver"])
    assert [row["topic"] for row in terminal.rows("topic", "list")] == ["orders", "plain"]
    assert {row["writeQueueNums"] for row in terminal.rows("topic", "route", "orders")} == {3}
    assert {row["writeQueueNums"] for row in terminal.rows("topic", "route", "plain")} == {8}
    process.send_signal(number)
    assert ended(process) == (0, "", [])
    assert not Path(addresses["directory"]).exists()


@pytest.mark.parametrize(
    ("topic", "status", "text"),
    [
        ("orders:many", 2, "is not NAME or NAME:QUEUES"),
        (":3", 2, "is not NAME or NAME:QUEUES"),
        ("orders:0", 1, "a number of queues from 1 to"),
        ("orders:70000", 1, "a number of queues from 1 to"),
        ("no such name", 1, "no such name"),
    ],
)
def test_topics_that_cannot_be_made(topic: str, status: int, text: str, tmp_path: Path) -> None:
    ending, output, errors = ran("dev", "--port", "0", "--topic", topic, home=tmp_path)
    assert (ending, output) == (status, "")
    assert text in errors[-1]
