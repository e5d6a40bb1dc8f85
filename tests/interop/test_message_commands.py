"""`pyrmq send`, `tail`, `consume`, `query --consume-by` and the rows of changes on each RocketMQ."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pyrmq_core import ConsumeLater
from tests.support.apache import ApacheCluster
from tests.support.consumer_jobs import Seen, fresh
from tests.support.terminal import Terminal, consuming_elsewhere, soon

QUEUES = [("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)]
LINES = 40


@pytest.fixture
def terminal(apache: ApacheCluster) -> Terminal:
    return Terminal(apache.nameserver.address)


@pytest.fixture
def topic(terminal: Terminal) -> str:
    """A topic with two queues at each of two brokers, which `topic create` reports."""
    name = fresh("commands")
    rows = terminal.rows("topic", "create", name, "-r", "2", "-w", "2")
    assert [(row["brokerName"], row["writeQueueNums"], row["perm"]) for row in rows] == [
        ("broker-a", 2, 6),
        ("broker-b", 2, 6),
    ]
    return name


def objects(terminal: Terminal, *words: str) -> list[dict[str, object]]:
    """Returns what a command prints with --json about each message."""
    return [json.loads(line) for line in terminal.text(*words, "--json").splitlines()]


def send_lines(terminal: Terminal, topic: str, file: Path) -> None:
    """Sends the bodies `line 0` to `line 39`, every fourth tagged `paid`, from a file of JSON lines."""
    lines = [{"body": f"line {number}", "tags": "free" if number % 4 else "paid"} for number in range(LINES)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert str(LINES) in terminal.text("send", topic, "--input", "json", "--file", str(file), "-q")


def test_messages_from_send_to_consume(terminal: Terminal, apache: ApacheCluster, topic: str, tmp_path: Path) -> None:
    group, bodies = fresh("commands"), {f"line {number}" for number in range(LINES)}
    send_lines(terminal, topic, tmp_path / "orders.jsonl")
    words = ("--tags", "sent", "--keys", "k1 k2", "--property", "region=eu")
    (sent,) = objects(terminal, "send", topic, "one", *words)
    assert sent["status"] == "SEND_OK"

    read = objects(terminal, "tail", topic, "--max", str(LINES + 1))
    assert sorted(str(line["body"]) for line in read) == sorted({*bodies, "one"})
    (tail_row,) = [message for message in read if message["body"] == "one"]
    assert (tail_row["tags"], tail_row["msgId"]) == ("sent", sent["msgId"])
    assert (tail_row["brokerName"], tail_row["queueId"], tail_row["queueOffset"]) == tuple(
        sent[name] for name in ("brokerName", "queueId", "queueOffset")
    )
    assert terminal.text("tail", topic, "--tags", "sent", "-o", "{keys}|{properties[region]}|{body}\n").strip() == (
        "k1 k2|eu|one"
    )
    paid = objects(terminal, "tail", topic, "--tags", "paid")
    assert {message["body"] for message in paid} == {f"line {number}" for number in range(0, LINES, 4)}
    printed = apache.mqadmin("printMsg", "-t", topic, "-s", "paid", "-d", "true", timeout=60)
    assert sorted(re.findall(r"BODY: (line \d+)", printed)) == sorted(str(message["body"]) for message in paid)
    by_sql = objects(terminal, "tail", topic, "--sql", "TAGS = 'paid' OR region = 'eu'")
    assert {message["body"] for message in by_sql} == {message["body"] for message in paid} | {"one"}
    assert "SUBSCRIPTION_PARSE_FAILED (23)" in terminal.refused(1, "tail", topic, "--sql", "amount >")
    place = f"{sent['brokerName']}/{sent['queueId']}"
    last = objects(terminal, "tail", topic, "--queue", place, "--offset", str(sent["queueOffset"]))
    assert [message["body"] for message in last] == ["one"]

    consume = ("consume", topic, "-g", group, "--from", "earliest", "--max")
    first = objects(terminal, *consume, "10")
    waiting = objects(terminal, "tail", topic, "-g", group)
    rest = objects(terminal, *consume, str(LINES + 1 - 10))
    assert {message["body"] for message in waiting} == {message["body"] for message in rest}
    assert sorted(str(message["body"]) for message in (*first, *rest)) == sorted({*bodies, "one"})
    progress = terminal.rows("group", "progress", group, "-t", topic)
    assert [row["lag"] for row in progress] == [0] * len(QUEUES)
    assert "holds 41 messages, none of them after the offsets" in terminal.text("tail", topic, "-g", group)


def test_a_member_consumes_a_message_at_once(terminal: Terminal, apache: ApacheCluster, topic: str) -> None:
    group, seen = fresh("commands"), Seen()
    with consuming_elsewhere(apache.nameserver.address, group, topic, seen):
        (sent,) = objects(terminal, "send", topic, "again")
        query = ("query", topic, "--id", str(sent["msgId"]))
        soon(lambda: terminal.rows(*query) and "again" in seen.bodies)
        soon(lambda: terminal.rows("clients", "-g", group))
        (row,) = terminal.rows(*query, "--consume-by", group)
        consumed = row["consumed"]
        assert isinstance(consumed, dict)
        assert (consumed["group"], consumed["consumeResult"]) == (group, "CR_SUCCESS")
        assert seen.bodies == ["again", "again"]
        seen.orders = {"again": [ConsumeLater(1)]}
        assert "CR_LATER" in terminal.refused(1, *query, "--consume-by", group)
    assert f"no member of group {group}" in terminal.refused(1, *query, "--consume-by", group)


def test_changes_are_rows(terminal: Terminal, topic: str) -> None:
    group = fresh("commands")
    expected: list[tuple[tuple[str, ...], list[dict[str, object]]]] = [
        (("group", "create", group), [{"group": group}]),
        (("kv", "put", topic, "k", "v"), [{"namespace": topic, "key": "k", "value": "v"}]),
        (("kv", "get", topic, "k"), [{"key": "k", "value": "v"}]),
        (("kv", "delete", topic, "k"), [{"namespace": topic, "key": "k"}]),
        (
            ("broker", "config", "broker-a", "--set", "fileReservedTime=72"),
            [{"brokerName": "broker-a", "setting": "fileReservedTime", "value": "72"}],
        ),
        (
            ("topic", "perm", topic, "r"),
            [{"brokerName": name, "before": 6, "after": 4} for name in ("broker-a", "broker-b")],
        ),
    ]
    for words, rows in expected:
        assert [{name: row[name] for name in rows[0]} for row in terminal.rows(*words)] == rows, words
    terminal.text("topic", "perm", topic, "rw")
    terminal.text("send", topic, "one")
    reset = terminal.rows("group", "reset", group, "-t", topic, "--to", "latest", "--offline")
    assert [(row["brokerName"], row["queueId"]) for row in reset] == QUEUES
    (sought,) = terminal.rows("group", "seek", group, "-t", topic, "-b", "broker-b", "-q", "1", "-o", "0")
    assert (sought["brokerName"], sought["queueId"]) == QUEUES[3]
    assert [row["consumerOffset"] for row in terminal.rows("group", "progress", group, "-t", topic)][3] == 0
    assert terminal.rows("group", "delete", group, "--yes") == [{"group": group}]
    deleted = terminal.rows("topic", "delete", topic, "--yes")
    assert deleted == [{"topic": topic, "brokerName": name} for name in ("broker-a", "broker-b")]
