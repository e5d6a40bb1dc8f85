"""Input that is wrong, empty or odd, as commands: a topic of one broker, a group without members, times, encodings."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.embedded import TopicConfig
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from tests.servers.broker.serving import message
from tests.support.apache import ask
from tests.support.commands import PROGRAM
from tests.support.terminal import Terminal, soon

TAKE_TIMES = (
    *("tail T --from", "query T --key k --from", "query T --key k --until"),
    *("group reset G -t T --to", "dlq list G --from"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, topics={"T": 1}) as cluster:
        yield cluster


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


def test_a_topic_that_only_one_broker_knows(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    creation = UpdateTopic.of(TopicConfig("alone", 1, 1, 6)).to_command()
    assert ask(cluster.brokers["broker-b"], creation).code == 0
    soon(lambda: terminal.run("topic", "route", "alone").exit_code == 0)
    for words in (("topic", "route"), ("topic", "stats"), ("topic", "perm")):
        assert [row["brokerName"] for row in terminal.rows(*words, "alone")] == ["broker-b"]
    assert "alone/broker-b/0" in terminal.text("send", "alone", "hello", "--keys", "K")
    assert terminal.text("tail", "alone") == "broker-b/0@0 K hello\n"
    terminal.text("group", "create", "G")
    reset = terminal.rows("group", "reset", "G", "-t", "alone", "--to", "earliest")
    assert [(row["brokerName"], row["after"]) for row in reset] == [("broker-b", 0)]
    assert [(row["brokerName"], row["lag"]) for row in terminal.rows("group", "progress", "G")] == [("broker-b", 1)]
    soon(lambda: terminal.rows("query", "alone", "--key", "K"))
    wrong = terminal.refused(1, "group", "seek", "G", "-t", "alone", "-b", "broker-a", "-q", "0", "-o", "0")
    assert wrong == "Error: topic alone is not on broker broker-a, or that one has no master"
    wrong = terminal.refused(1, "topic", "perm", "alone", "r", "-b", "broker-a")
    assert wrong.endswith("it is on broker-b of DefaultCluster")
    assert terminal.rows("topic", "delete", "alone", "--yes") == [{"topic": "alone", "brokerName": "broker-b"}]
    assert "No route info of this topic: alone" in terminal.refused(1, "topic", "stats", "alone")


def test_a_group_nobody_is_in(terminal: Terminal) -> None:
    terminal.text("send", "T", "body")
    unknown = "no broker knows a group nobody"
    assert unknown in terminal.refused(1, "group", "describe", "nobody")
    assert unknown in terminal.refused(1, "group", "delete", "nobody", "--yes")
    assert unknown in terminal.refused(1, "group", "progress", "nobody")
    assert unknown in terminal.refused(1, "group", "progress", "nobody", "--json")
    assert terminal.rows("clients", "-g", "nobody") == []
    assert "group nobody has no offsets" in terminal.refused(1, "group", "clone", "nobody", "other")
    assert unknown in terminal.refused(1, "dlq", "list", "nobody")
    assert unknown in terminal.refused(1, "dlq", "resend", "nobody", "--all")
    checks = terminal.run("health", "--max-lag", "0", "-g", "nobody")
    assert checks.exit_code == 1
    assert "group nobody has no offsets, so its lag is not known" in checks.stdout
    read = terminal.run("tail", "T", "-g", "nobody")
    assert read.stdout.endswith(" body\n")
    assert read.stderr == "group nobody has no offsets of topic T: reading begins as without -g\n"


def test_a_group_without_offsets_or_letters(terminal: Terminal) -> None:
    terminal.text("group", "create", "idle")
    assert terminal.text("group", "progress", "idle") == "group idle has no offsets: no member has consumed\n"
    assert terminal.rows("group", "progress", "idle") == []
    assert "No route info of this topic: typo" in terminal.refused(1, "group", "progress", "idle", "-t", "typo")
    assert terminal.text("dlq", "list", "idle") == "group idle has no dead letters\n"
    assert terminal.rows("dlq", "list", "idle") == []
    assert terminal.text("dlq", "resend", "idle", "--all") == "group idle has no dead letters to send\n"
    assert terminal.rows("dlq", "resend", "idle", "--all") == []


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this process is nine hours ahead, without a summer time."""
    monkeypatch.setenv("TZ", "XST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_times_with_and_without_zone(cluster: EmbeddedCluster, terminal: Terminal, in_tokyo: None) -> None:
    """One instant in four forms chooses the same messages, in every command that takes a time."""
    topic, group = "times", "timed"
    for name in (topic, f"%DLQ%{group}"):
        terminal.text("topic", "create", name, "-r", "1", "-w", "1")
        stored = message(name, b"now", "KEYS\x01K\x02DLQ_ORIGIN_TOPIC\x01times\x02").to_command()
        assert ask(cluster.brokers["broker-a"], stored).code == 0
    terminal.text("group", "create", group)
    soon(lambda: terminal.rows("query", topic, "--key", "K"))
    now = datetime.now(UTC)
    for hours, is_there in ((-1, True), (1, False)):
        at = now + timedelta(hours=hours)
        local = at.astimezone().replace(tzinfo=None)
        assert (local - at.replace(tzinfo=None)) == timedelta(hours=9)
        forms = [at.isoformat(), f"{at:%Y-%m-%dT%H:%M:%SZ}", local.isoformat(), f"{local:%Y-%m-%d %H:%M}"]
        for form in forms:
            assert ("now" in terminal.text("tail", topic, "--from", form)) is is_there, form
            assert bool(terminal.rows("query", topic, "--key", "K", "--from", form)) is is_there
            assert bool(terminal.rows("query", topic, "--key", "K", "--until", form)) is not is_there
            assert bool(terminal.rows("dlq", "list", group, "--from", form)) is is_there
            reset = terminal.rows("group", "reset", group, "-t", topic, "--to", form)
            assert [row["after"] for row in reset if row["brokerName"] == "broker-a"] == [0 if is_there else 1]


@pytest.mark.parametrize("text", ["0001-01-01", "2026-13-01", "2026-01-01T25:00", "soon", ""])
@pytest.mark.parametrize("words", TAKE_TIMES)
def test_a_time_that_is_none(terminal: Terminal, in_tokyo: None, words: str, text: str) -> None:
    option = words.split()[-1]
    refused = terminal.refused(2, *words.split(), text)
    assert refused.startswith(f"Error: Invalid value for {option}: {text!r} is not ")
    assert "an ISO-8601 time such as 2026-05-01T12:00" in refused


def test_a_time_behind_the_last_year(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as behind:
        behind.setenv("TZ", "XST+9")
        time.tzset()
        refused = terminal.refused(2, "tail", "T", "--from", "9999-12-31T23:59")
    time.tzset()
    assert refused.startswith("Error: Invalid value for --from: '9999-12-31T23:59' is not ")


def test_an_output_whose_encoding_lacks_a_character(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    terminal = Terminal(cluster.nameserver)
    terminal.text("topic", "create", "text", "-r", "1", "-w", "1")
    terminal.text("send", "text", "grüße 世界")
    environment = {**os.environ, "HOME": str(tmp_path), "NAMESRV_ADDR": cluster.nameserver}
    environment["PYTHONIOENCODING"] = "latin-1"
    done = subprocess.run([*PROGRAM, "tail", "text"], env=environment, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode("latin-1").endswith(" grüße \\u4e16\\u754c\n")
    assert done.stderr == b""
