"""`pyrmq send` as a process: files, JSON lines, order, progress, and the account of what is stored after a failure."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from tests.support.commands import ENDS_WITHIN, ended, ran, started
from tests.support.sink import messages

BATCH = RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, topics={"T": 4}) as cluster:
        yield cluster


def send(cluster: EmbeddedCluster, home: Path, *options: str, lines: bytes = b"") -> tuple[int, str, list[str]]:
    return ran("send", "T", "-n", cluster.nameserver, *options, home=home, stdin=lines)


def test_json_lines_have_members_of_their_own(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lines = [
        {"body": "one", "keys": ["1", "2"], "properties": {"region": "eu"}, "tags": "sent"},
        {"bodyBase64": "/wA=", "shardingKey": "k"},
        {"body": "three", "flag": 3},
    ]
    content = b"\n".join(json.dumps(line).encode() for line in lines)
    status, output, errors = send(cluster, tmp_path, "--input", "json", "--tags", "paid", lines=content)
    assert (status, output.count("SEND_OK"), errors) == (0, 3, [])
    by_body = {message.body: message for message in messages(cluster, "T")}
    assert by_body.keys() == {b"one", b"\xff\0", b"three"}
    assert (by_body[b"one"].keys, by_body[b"one"].tags, by_body[b"one"].properties["region"]) == ("1 2", "sent", "eu")
    assert (by_body[b"\xff\0"].sharding_key, by_body[b"\xff\0"].tags) == ("k", "paid")
    assert by_body[b"three"].flag == 3


def test_files_are_sent_one_after_another(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    for name, content in (("a.txt", b"1\n2\n"), ("b.txt", b"3\n\n4")):
        (tmp_path / name).write_bytes(content)
    status, output, errors = send(cluster, tmp_path, "--file", "a.txt", "--file", "b.txt", "-q")
    assert (status, errors) == (0, ["b.txt, line 2 is blank and left out (1): RocketMQ takes no empty body"])
    assert output.startswith("4 messages stored in ")
    assert sorted(message.body for message in messages(cluster, "T")) == [b"1", b"2", b"3", b"4"]


def test_a_priority_chooses_the_queue(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lines = '{"body": "2", "priority": 2}\n{"body": "0"}\n'
    copied = '{"body": "1", "msgId": "00", "properties": {"_SYS_MSG_PRIORITY_": "1", "a": "b"}}\n'
    (tmp_path / "a.json").write_text(lines + copied)
    options = ("--input", "json", "--priority", "0", "--file", "a.json", "-q")
    assert send(cluster, tmp_path, *options)[0] == 0
    read = messages(cluster, "T")
    assert {message.body: message.queue_id for message in read} == {b"0": 0, b"1": 1, b"2": 2}


def test_a_lite_topic_chooses_the_queue_and_is_copied(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    copied = '{"body": "copy", "msgId": "00", "properties": {"__LITE_TOPIC": "session-2", "a": "b"}}\n'
    (tmp_path / "a.json").write_text('{"body": "1", "liteTopic": "session-1"}\n{"body": "0"}\n' + copied)
    options = ("--input", "json", "--lite-topic", "session-0", "--file", "a.json", "-q")
    assert send(cluster, tmp_path, *options)[0] == 0
    read = messages(cluster, "T")
    assert sorted((message.body, message.queue_id, message.properties["__LITE_TOPIC"]) for message in read) == [
        (b"0", 0, "session-0"),
        (b"1", 3, "session-1"),
        (b"copy", 2, "session-2"),
    ]


def test_a_wrong_line_of_a_file_is_named(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"body": "1"}\n')
    (tmp_path / "b.json").write_text('{"body": "2"}\n{"body": "3"}\n{"text": "4"}\n{"body": "5"}\n')
    status, _, errors = send(cluster, tmp_path, "--file", "a.json", "--file", "b.json", "--input", "json")
    assert (status, len(errors)) == (1, 1)
    assert errors[0].startswith("Error: b.json, line 3: there is no member 'text'; there are body, bodyBase64, tags")
    assert errors[0].endswith("; of the messages 3 stored, 1 not stored; nothing after line 3 was sent")
    assert len(messages(cluster, "T")) == 3


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ('{"body": "x", "tags": ""}', "property 'TAGS' has an empty value"),
        ('{"body": "x", "keys": "  "}', "keys holds no word"),
        ('{"body": "x", "properties": {"UNIQ_KEY": "1"}}', "UNIQ_KEY is a name RocketMQ keeps for itself"),
        ('{"body": "' + "x" * 5000 + '", "tags": ""}', "property 'TAGS' has an empty value"),  # goes alone
    ],
)
def test_a_line_that_cannot_be_encoded_is_named_within_its_list(
    cluster: EmbeddedCluster, tmp_path: Path, wrong: str, text: str
) -> None:
    """It is found when the list is sent: the lines before it are, a blank one among them, and none after it."""
    lines = ['{"body": "1", "tags": "a"}', "", '{"body": "3"}', wrong, '{"body": "5"}', wrong, "no JSON"]
    (tmp_path / "a.json").write_text("\n".join(lines) + "\n")
    status, _, errors = send(cluster, tmp_path, "--file", "a.json", "--input", "json")
    assert (status, len(errors)) == (1, 2)
    assert errors[0].startswith("a.json, line 2 is blank and left out")
    assert errors[1].startswith("Error: a.json, line 4: ")
    assert text in errors[1]
    assert errors[1].endswith("; of the messages 2 stored, 1 not stored; nothing after line 4 was sent")
    assert sorted(message.body for message in messages(cluster, "T")) == [b"1", b"3"]


def test_a_key_keeps_its_order_over_many_requests(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The broker holds every other request for a while: another sent meanwhile would overtake it."""
    held: list[trio.Event] = []

    async def let_the_next_pass(request: Command, peer: Peer) -> Pass:
        if held:
            held.pop().set()
        else:
            held.append(trio.Event())
            with trio.move_on_after(0.3):
                await held[0].wait()
            held.clear()
        return PASS

    cluster.control(BATCH, let_the_next_pass)
    lines = [b"%d %s" % (number, b"x" * 100) for number in range(12_000)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    status, output, errors = send(cluster, tmp_path, "--file", "lines", "--sharding-key", "k", "-q", "--json")
    assert (status, errors) == (0, [])
    assert json.loads(output)["stored"] == 12_000
    assert [message.body for message in messages(cluster, "T")] == lines


def test_a_refused_batch_is_accounted_for(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The command ends without reading on: its input stays open, and more lines than a request holds are left."""
    answered: list[int] = []

    async def refuse_the_third(request: Command, peer: Peer) -> Command | Pass:
        answered.append(request.code)
        return refusal(ResponseCode.MESSAGE_ILLEGAL, "not this one") if len(answered) == 3 else PASS

    cluster.control(BATCH, refuse_the_third)
    process = started("send", "T", "-n", cluster.nameserver, "-q", home=tmp_path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it may end before it has read all of these
        process.stdin.write("".join(f"{number} {'x' * 100}\n" for number in range(50_000)))
        process.stdin.flush()
    process.wait(ENDS_WITHIN)
    status, output, errors = ended(process)
    assert (status, output, len(errors)) == (1, "", 1)
    counts = re.fullmatch(
        r"Error: lines (\d+) to (\d+): .*not this one.*; of the messages (\d+) stored, (\d+) not stored; "
        r"nothing after line (\d+) was sent",
        errors[0],
    )
    assert counts is not None, errors
    first, last, stored, failed, end = map(int, counts.groups())
    assert failed == last - first + 1
    assert stored + failed == end <= 50_000
    assert len(messages(cluster, "T")) == stored


def test_a_broker_that_dies_leaves_lines_perhaps_stored(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async def never(request: Command, peer: Peer) -> None:
        return None

    cluster.control(BATCH, never)
    status, output, errors = send(cluster, tmp_path, "--timeout", "1", lines=b"one\ntwo\n")
    assert (status, output, len(errors)) == (1, "", 1)
    assert errors[0].startswith("Error: lines 1 to 2: ")
    assert errors[0].endswith(
        "; of the messages 0 stored, 0 not stored, 2 perhaps stored (sending them again may store second copies); "
        "nothing after line 2 was sent"
    )


def test_an_interrupt_says_what_is_perhaps_stored(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    arrived: list[int] = []

    async def never(request: Command, peer: Peer) -> None:
        arrived.append(request.code)
        return

    cluster.control(BATCH, never)
    process = started("send", "T", "-n", cluster.nameserver, "--timeout", "60", home=tmp_path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("one\ntwo\n")
    process.stdin.flush()
    until = time.monotonic() + ENDS_WITHIN
    while not arrived:
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    status, output, errors = ended(process)
    assert (status, output) == (130, "")
    assert errors == ["interrupted: of the messages 0 are stored and 2 perhaps stored; nothing after line 2 was sent"]


def test_progress_is_shown_on_a_terminal_after_a_second(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    terminal, slave = pty.openpty()
    process = started("send", "T", "-n", cluster.nameserver, "-q", home=tmp_path, stdin=subprocess.PIPE, stderr=slave)
    os.close(slave)
    assert process.stdin is not None
    os.set_blocking(terminal, False)
    shown, began, until = b"", time.monotonic(), time.monotonic() + ENDS_WITHIN
    while b"messages stored, " not in shown:
        assert time.monotonic() < until
        process.stdin.write("line\n" * 10)
        process.stdin.flush()
        time.sleep(0.02)
        try:
            shown += os.read(terminal, 65536)
        except BlockingIOError:
            continue
    assert time.monotonic() - began >= 1
    process.stdin.close()
    process.stdin = None
    assert process.stdout is not None
    assert "messages stored in" in process.stdout.read()
    assert process.wait(ENDS_WITHIN) == 0
    process.stdout.close()
    os.close(terminal)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("body", "--file", "lines"), "give BODY or --file, not both"),
        (("body", "--property", "a"), "is not NAME=VALUE"),
        (("body", "--property", "UNIQ_KEY=1"), "UNIQ_KEY is a name RocketMQ keeps for itself"),
        (("body", "--delay", "0"), "--delay"),
        (("body", "--delay", "1e9"), "the max delay 259200000ms"),
        (("body", "--delay", "1", "--delay-level", "1"), "exclude one another"),
        (("body", "--priority", "-1"), "--priority"),
        (("body", "--priority", "1", "--sharding-key", "k"), "both choose the queue"),
        (("body", "--lite-topic", "a b"), "lite_topic is 'a b'; a lite topic's name has 1 to 64"),
        (("--file", "nowhere"), "nowhere"),
        (("text", "--input", "json"), "; without --input json, a line is a body"),
    ],
)
def test_wrong_options_are_named(cluster: EmbeddedCluster, tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    (tmp_path / "lines").write_text("x\n")
    status, output, errors = send(cluster, tmp_path, *options)
    assert (status > 0, output) == (True, "")
    assert text in errors[-1]
