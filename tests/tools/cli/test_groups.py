"""`pyrmq group`, `query`, `dlq` and `clients` on a cluster in the process: their output, and their failures."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from pyrmq_core import Message, MessageExt, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.testing import Command, CutConnection, Peer, RequestCode
from pyrmq_core.tools.cli.commands import pyrmq
from pyrmq_core.tools.cli.times import age, instant
from tests.support.commands import PROGRAM
from tests.support.consumer_jobs import Seen, fresh
from tests.support.group_admin_jobs import administering, behind
from tests.support.message_admin_jobs import dead
from tests.support.terminal import consuming_elsewhere, soon


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


class Terminal:
    """Runs commands against one NameServer, on a terminal of some width."""

    def __init__(self, nameserver: str) -> None:
        self._nameserver = nameserver

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(pyrmq, arguments, env={"NAMESRV_ADDR": self._nameserver})

    def text(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        rows: list[dict[str, Any]] = json.loads(result.stdout)
        return rows

    def refused(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 1, result.output
        return result.stderr


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


@pytest.fixture(scope="module")
def late(cluster: EmbeddedCluster) -> tuple[str, str]:
    """A topic and a group with two messages in each of four queues, of which the group consumed one."""
    return trio.run(behind, cluster.nameserver)


def test_a_group_from_its_making_to_its_end(terminal: Terminal) -> None:
    group = fresh("made")
    assert terminal.text("group", "create", group, "-r", "3") == f"group {group} is there\n"
    assert terminal.text("group", "create", group, "--no-consume") == f"group {group} is there\n"
    (description,) = terminal.rows("group", "describe", group)
    assert {
        name: (config["retryMaxTimes"], config["consumeEnable"]) for name, config in description["settings"].items()
    } == {
        "broker-a": (3, False),
        "broker-b": (3, False),
    }
    text = terminal.text("group", "describe", group)
    assert text.splitlines()[1].split() == ["broker-a", "False", "3", "1", "True"]
    assert text.endswith(f"no member of group {group} is connected\n")
    assert group in {row["group"] for row in terminal.rows("group", "list")}
    assert terminal.text("group", "delete", group, "--yes") == f"group {group} is deleted\n"
    assert group not in {row["group"] for row in terminal.rows("group", "list")}
    gone = terminal.run("group", "describe", group)
    assert (gone.exit_code, gone.output.count("\n")) == (1, 1)
    assert f"no broker knows a group {group}" in gone.output


def test_the_list_hides_rocketmqs_own_groups(terminal: Terminal, late: tuple[str, str]) -> None:
    topic, group = late
    (row,) = [row for row in terminal.rows("group", "list") if row["group"] == group]
    assert row == {
        "group": group,
        "members": 0,
        "consumeType": None,
        "messageModel": None,
        "lag": 4,
        "queuesBeyondEnd": 0,
        "topics": [topic],
        "brokers": ["broker-a", "broker-b"],
    }
    assert "TOOLS_CONSUMER" not in terminal.text("group", "list")
    assert "TOOLS_CONSUMER" in terminal.text("group", "list", "-a")
    (line,) = [line.split() for line in terminal.text("group", "list").splitlines() if line.startswith(group)]
    assert line == [group, "0", "4", "1"]


@pytest.mark.parametrize("namespace", ["", "tenant"])
def test_reading_creates_no_group_of_our_own(cluster: EmbeddedCluster, terminal: Terminal, namespace: str) -> None:
    topic = fresh("read")
    with Producer("G", nameserver=cluster.nameserver, namespace=namespace) as producer:
        producer.send(Message(topic, b"body"))
    before = terminal.text("group", "list")
    assert "body" in terminal.text("tail", topic, "--namespace", namespace)
    assert terminal.text("group", "list") == before


def test_progress_shows_lag_and_age(terminal: Terminal, late: tuple[str, str]) -> None:
    topic, group = late
    lines = terminal.text("group", "progress", group, "-t", topic).splitlines()
    assert lines[0].split() == ["topic", "broker", "queue", "offset", "end", "lag", "waits"]
    assert [line.split()[:6] for line in lines[1:5]] == [
        [topic, name, queue, "1", "2", "1"] for name in ("broker-a", "broker-b") for queue in ("0", "1")
    ]
    assert lines[5].startswith("4 messages wait, the oldest for ")
    rows = terminal.rows("group", "progress", group)
    assert {row["lag"] for row in rows} == {1}
    assert all(datetime.fromisoformat(row["waitingSince"]).tzinfo for row in rows)
    assert "no broker knows a group" in terminal.refused("group", "progress", fresh("never"))


def test_the_groups_of_a_topic_are_shown_with_their_lag(terminal: Terminal, late: tuple[str, str]) -> None:
    topic, group = late
    head, line = terminal.text("topic", "groups", topic, "--lag").splitlines()
    assert head.split() == ["group", "members", "lag", "delivered/s", "waits"]
    assert line.split()[:4] == [group, "0", "4", "0.0"]
    (row,) = terminal.rows("topic", "groups", topic, "--lag")
    assert (row["group"], row["members"], row["lag"], row["deliveredTps"]) == (group, 0, 4, 0.0)
    assert datetime.fromisoformat(row["waitingSince"]).tzinfo


def test_why_a_group_waits_is_said(terminal: Terminal, late: tuple[str, str]) -> None:
    _, group = late
    terminal.text("group", "create", group)
    assert "4 wait: no member is connected" in terminal.text("group", "progress", group, "--members")
    rows = terminal.rows("group", "progress", group, "--members")
    assert {row["reason"] for row in rows} == {"no member is connected"}
    assert "why is not known" not in terminal.text("group", "progress", group)


def test_offsets_are_reset_sought_and_cloned(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    topic, group = trio.run(behind, cluster.nameserver)
    for _ in range(2):  # it changes nothing
        rows = terminal.rows("group", "reset", group, "-t", topic, "--to", "latest", "--dry-run")
        assert [(row["before"], row["after"]) for row in rows] == [(1, 2)] * 4
    lines = terminal.text("group", "reset", group, "-t", topic, "--to", "latest").splitlines()
    assert [line.split()[-2:] for line in lines[1:]] == [["1", "2"]] * 4
    rows = terminal.rows("group", "reset", group, "--topic", topic, "--to", "2001-01-01T00:00")
    assert [(row["before"], row["after"]) for row in rows] == [(2, 0)] * 4
    (row,) = terminal.rows("group", "seek", group, "-t", topic, "-b", "broker-b", "-q", "1", "-o", "1")
    assert row == {"topic": topic, "brokerName": "broker-b", "queueId": 1, "before": 0, "after": 1}
    other = fresh("clone")
    terminal.text("group", "create", other)
    assert terminal.text("group", "clone", group, other) == f"group {other} has the offsets of {group} in {topic}\n"
    assert sum(line["lag"] for line in terminal.rows("group", "progress", other)) == 7


def made_topic(nameserver: str) -> str:
    topic = fresh("orders")
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=1)
    return topic


def dead_letter(nameserver: str, group: str, topic: str) -> MessageExt:
    async def make() -> MessageExt:
        async with administering(nameserver) as admin:
            return await dead(nameserver, admin, group, topic, "poison")

    return trio.run(make)


def test_members_are_shown(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    topic, group = made_topic(cluster.nameserver), fresh("group")
    terminal.text("group", "create", group)
    with (
        consuming_elsewhere(cluster.nameserver, group, topic, Seen(), tags="a || b"),
        Admin(nameserver=cluster.nameserver) as admin,
    ):
        soon(lambda: sum(len(consumer.queues) for consumer in admin.groups.describe(group).members) >= 4)
        (member,) = admin.groups.describe(group).members
        text = terminal.text("group", "describe", group)
        progress = terminal.text("group", "progress", group, "-t", topic, "--members")
        stack = terminal.text("group", "stack", group, member.client_id)
        nobody = terminal.run("group", "stack", group, "nobody")
        clients = terminal.rows("clients", "-g", group)
        everyone = terminal.text("clients")
        refused = terminal.run("group", "delete", group, "--yes")
        moved = terminal.run("group", "reset", group, "-t", topic, "--to", "latest", "--offline")
    (line,) = [line.split() for line in text.splitlines() if line.startswith(member.client_id)]
    assert line[:5] == [member.client_id, member.address, "PYTHON", "5.3.3", "2"]
    assert all(float(figure) >= 0 for figure in line[5:8])
    assert "thread" in stack
    assert "no member nobody" in nobody.output
    assert any(line.split() == [topic, "a", "||", "b", "TAG"] for line in text.splitlines())
    assert progress.count(member.client_id) == 2
    assert [(row["kind"], row["group"], row["client"]) for row in clients] == [("consumer", group, member.client_id)]
    assert member.client_id in everyone
    for failed in (refused, moved):
        assert failed.exit_code == 1
        assert f"members of group {group} are connected" in failed.output


def test_messages_are_found_with_their_life(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    topic, group = made_topic(cluster.nameserver), fresh("group")
    letter = dead_letter(cluster.nameserver, group, topic)
    (row,) = terminal.rows("query", topic, "--key", "k7", "--track", "--trace")
    assert (row["body"], row["msgId"], row["keys"], row["trace"]) == ("poison", letter.msg_id, "k7", [])
    (track,) = row["tracks"]
    assert (track["group"], track["trackType"]) == (group, "DEAD_LETTER")
    assert track["deadLetters"] == [letter.offset_msg_id]
    for arguments in (("--unique-key", letter.msg_id), ("--id", letter.msg_id), ("--id", row["offsetMsgId"])):
        rows = terminal.rows("query", topic, *arguments)
        assert [line["offsetMsgId"] for line in rows] == [row["offsetMsgId"]]
    text = terminal.text("query", topic, "--key", "k7", "--track", "--trace")
    assert f"{letter.msg_id} in each group:" in text
    assert "no client reported any" in text
    assert "no such message" in terminal.text("query", topic, "--key", "absent")
    elsewhere = "C0000201" + "00002A9F" + "0" * 16  # an offset message id of 192.0.2.1:10911
    assert "no such message" in terminal.text("query", topic, "--id", elsewhere)
    assert "no such message" in terminal.text("query", topic, "--id", "nonsense")


def test_a_row_is_found_by_its_json_key(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    """Debezium Server writes it into KEYS, which has blanks then, and all rows have its first word."""
    topic = made_topic(cluster.nameserver)
    with Producer("rows", nameserver=cluster.nameserver) as producer:
        for number in (7, 8):
            keys = f'{{"id": {number}, "shop": "tea house"}}'
            producer.send(Message(topic, str(number).encode(), keys=keys))
    soon(lambda: len(terminal.rows("query", topic, "--key", '{"id":')) == 2)
    rows = terminal.rows("query", topic, "--key", '{"id": 8, "shop": "tea house"}')
    assert [row["body"] for row in rows] == ["8"]
    assert "no such message" in terminal.text("query", topic, "--key", '{"id": 8, "shop": "tea"}')


def test_a_trace_is_shown(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    topic = made_topic(cluster.nameserver)
    with Producer("tracing", nameserver=cluster.nameserver, trace=True) as producer:
        sent = producer.send(Message(topic, b"traced"))
    soon(lambda: terminal.rows("query", topic, "--id", sent.msg_id, "--trace")[0]["trace"])
    (row,) = terminal.rows("query", topic, "--id", sent.msg_id, "--trace")
    (event,) = row["trace"]
    assert (event["kind"], event["group"], event["topic"], event["success"]) == ("Pub", "tracing", topic, True)
    lines = terminal.text("query", topic, "--id", sent.msg_id, "--trace").splitlines()
    assert lines[-2].split() == ["time", "event", "group", "success", "ms", "tries"]
    assert lines[-1].split()[2:5] == ["Pub", "tracing", "yes"]


def test_dead_letters_are_listed_and_resent(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    topic, group, seen = made_topic(cluster.nameserver), fresh("group"), Seen()
    letter = dead_letter(cluster.nameserver, group, topic)
    lines = terminal.text("dlq", "list", group).splitlines()
    assert lines[0].split() == ["stored", "broker", "offset", "msgId", "from", "tries", "keys", "body"]
    assert lines[1].split()[4:6] == [letter.msg_id, topic]
    assert [row["msgId"] for row in terminal.rows("dlq", "list", group)] == [letter.msg_id]
    with consuming_elsewhere(cluster.nameserver, group, topic, seen):
        (sent,) = terminal.rows("dlq", "resend", group, "--id", letter.msg_id)
        soon(lambda: len(seen.messages) == 1)
        terminal.text("dlq", "resend", group, "--all", "--to", "origin")
        soon(lambda: len(seen.messages) == 2)
    assert sent == {"msgId": letter.msg_id, "sentTo": f"%RETRY%{group}", "status": "SEND_OK"}
    assert seen.bodies == ["poison", "poison"]
    missing = terminal.run("dlq", "resend", group, "--id", "absent", "--id", letter.msg_id)
    assert missing.exit_code == 1
    assert f"group {group} has no dead letter absent; nothing is sent" in missing.output
    assert "no broker knows a group" in terminal.refused("dlq", "list", fresh("lively"))
    assert terminal.rows("dlq", "list", group, "--from", "2999-01-01") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("group", "reset", "G", "--to", "latest"),
        ("group", "reset", "G", "-t", "T", "--to", "yesterday"),
        ("group", "seek", "G", "-t", "T", "-b", "B", "-q", "-1", "-o", "0"),
        ("group", "delete", "G"),
        ("query", "T"),
        ("query", "T", "--key", "k", "--id", "i"),
        ("query", "T", "--id", "i", "--from", "2026-01-01"),
        ("query", "T", "--key", "k", "--from", "soon"),
        ("dlq", "resend", "G"),
        ("dlq", "resend", "G", "--id", "i", "--all"),
        ("dlq", "list", "G", "--from", "soon"),
    ],
)
def test_wrong_use_ends_with_2(terminal: Terminal, arguments: tuple[str, ...]) -> None:
    assert terminal.run(*arguments).exit_code == 2


def test_a_broker_that_gives_no_answer_is_named(tmp_path: Path) -> None:
    async def cut(_request: Command, _peer: Peer) -> Command:
        raise CutConnection

    with EmbeddedCluster(brokers=2, topics={"orders": 1}) as cluster, Admin(nameserver=cluster.nameserver) as admin:
        admin.groups.create("audit")
        admin.groups.reset("audit", "orders", "earliest")
        terminal = Terminal(cluster.nameserver)
        for code in (RequestCode.GET_CONSUME_STATS, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
            cluster.control(code, cut, server="broker-b")
        for words in (("group", "list"), ("group", "progress", "audit"), ("group", "describe", "audit")):
            result = terminal.run(*words)
            assert result.exit_code == 0
            assert "broker-b gave no answer: " in result.stdout
            as_json = terminal.run(*words, "--json")
            assert json.loads(as_json.stdout)
            assert "broker-b gave no answer: " in as_json.stderr


def test_names_that_would_write_to_the_terminal_are_shown_as_text(terminal: Terminal, cluster: EmbeddedCluster) -> None:
    topic = fresh("hostile")
    with Admin(nameserver=cluster.nameserver) as admin, Producer("p", nameserver=cluster.nameserver) as producer:
        admin.create_topic(topic, queues=1)
        body = b"\x1b]0;title\x07\x1b[2J [red]x[/red] \r\n" + b"\xff" * 200
        producer.send(Message(topic, body, keys="\x1b[31mk"), queue=MessageQueue(topic, "broker-a", 0))
    deadline = time.monotonic() + 60
    while "no such message" in (text := terminal.text("query", topic, "--key", "\x1b[31mk")):
        assert time.monotonic() < deadline
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]x[/red]" in text
    assert len(text.splitlines()) == 2


def test_ages_and_times() -> None:
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    ages = ["2026-05-01T11:59:59.5", "2026-05-01T11:59:00", "2026-05-01T09:59:00", "2026-04-01T12:00:00"]
    assert [age(datetime.fromisoformat(text).replace(tzinfo=UTC), now) for text in ages] == ["0s", "1m", "2h", "30d"]
    assert age(None, now) is None
    assert age(datetime(2026, 5, 2, tzinfo=UTC), now) == "0s"
    assert instant("2026-05-01T12:00:00+02:00", "--to") == datetime(2026, 5, 1, 10, tzinfo=UTC)
    local = instant("2026-05-01T12:00:00", "--to")
    assert local == datetime(2026, 5, 1, 12).astimezone()


def test_progress_is_watched_and_fits_a_narrow_terminal(
    cluster: EmbeddedCluster, late: tuple[str, str], tmp_path: Path
) -> None:
    """On a terminal of 40 columns each queue is a block of lines; the table is made again until Ctrl-C."""
    topic, group = late
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "group", "progress", group, "-t", topic, "--watch", "--interval", "0.1", "-n", cluster.nameserver],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "COLUMNS": "40", "LINES": "80", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = ""
    try:
        deadline = time.monotonic() + 40
        while shown.count("4 messages wait") < 3:
            assert time.monotonic() < deadline, shown
            shown += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        os.close(ours)
    assert (process.returncode, errors) == (130, "")
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", shown)
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", plain)]
    assert any(line.split() == ["lag", "1"] for line in lines)
    assert max(map(len, lines)) <= 40
