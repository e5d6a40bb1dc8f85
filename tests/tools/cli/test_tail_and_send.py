"""`pyrmq tail`, `send`, `dev` and `topic delete` as processes: the work they do by themselves, and their output."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from pyrmq_core import Message, SendStatus
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from tests.support.commands import ENDS_WITHIN, ended, ran, started


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


def sent(cluster: EmbeddedCluster, topic: str, *bodies: bytes) -> None:
    with Producer("G", nameserver=cluster.nameserver) as producer:
        for body in bodies:
            producer.send(Message(topic, body))


def made(cluster: EmbeddedCluster, topic: str, queues: int = 1) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic(topic, queues=queues)


def bodies(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    with PullConsumer("G", nameserver=cluster.nameserver) as consumer:
        (queue,) = consumer.message_queues(topic)
        stored_bodies: list[bytes] = []
        while len(stored_bodies) < consumer.max_offset(queue):
            stored_bodies += [message.body for message in consumer.pull(queue, len(stored_bodies)).messages]
    return stored_bodies


def line_with(text: str, pipe: IO[str] | None) -> str:
    assert pipe is not None
    return next(line for line in iter(pipe.readline, "") if text in line)


def fed(content: bytes, *arguments: str, home: Path) -> tuple[int, str, list[str]]:
    return ran(*arguments, home=home, stdin=content)


def test_a_tail_goes_on_when_its_broker_is_back(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    made(cluster, "T", queues=4)
    sent(cluster, "T", b"before")
    process = started("tail", "T", "-f", "--from", "earliest", "-n", cluster.nameserver, home=tmp_path)
    line_with("before", process.stdout)
    cluster.kill("broker-a")
    assert "trying again until it is back" in line_with("broker-a is away", process.stderr)
    cluster.start("broker-a")
    line_with("broker-a is back", process.stderr)
    sent(cluster, "T", b"after")
    line_with("after", process.stdout)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "", [])


def test_a_tail_that_is_interrupted_says_nothing(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    process = following(cluster, tmp_path)
    process.send_signal(signal.SIGINT)
    status, _, errors = ended(process)
    assert (status, errors) == (130, [])


def test_a_tail_that_is_not_read_any_more_says_nothing(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    process = following(cluster, tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    sent_until(cluster, lambda: process.poll() is not None)
    assert ended(process) == (141, "", [])


def following(cluster: EmbeddedCluster, home: Path) -> subprocess.Popen[str]:
    """Starts a tail and reads the first of its lines."""
    made(cluster, "T")
    sent(cluster, "T", *(b"body-%d" % number for number in range(500)))
    process = started("tail", "T", "-f", "--from", "earliest", "-n", cluster.nameserver, home=home)
    line_with("body-0", process.stdout)
    return process


def sent_until(cluster: EmbeddedCluster, is_over: Callable[[], bool]) -> None:
    """Sends until `is_over()`: a tail notices a closed pipe when it writes its next line."""
    until = time.monotonic() + ENDS_WITHIN
    while not is_over():
        assert time.monotonic() < until
        sent(cluster, "T", b"more")


def test_a_tail_prints_what_is_there_and_says_why_it_prints_nothing(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    made(cluster, "T")

    def tail(*arguments: str) -> tuple[int, str, list[str]]:
        return ran("tail", "T", "-n", cluster.nameserver, *arguments, home=tmp_path)

    assert tail() == (0, "", ["topic T holds no messages; -f waits for some"])
    sent(cluster, "T", b"one", b"two")
    status, output, errors = tail()
    assert (status, [line.split()[-1] for line in output.splitlines()], errors) == (0, ["one", "two"], [])
    status, output, errors = tail("--from", "latest")
    assert (status, output, len(errors)) == (0, "", 1)
    assert "--from earliest prints them" in errors[0]
    assert tail("--tags", "paid") == (0, "", ["topic T holds 2 messages, none of them with the tags paid"])


def test_lines_are_sent_together_and_reported_in_their_order(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    made(cluster, "T")
    lines = [b"line %d" % number for number in range(2000)]
    content = b"\r\n".join(lines[:1000]) + b"\n" + b"\n".join(lines[1000:])  # the last one without an end
    status, output, errors = fed(content, "send", "T", "--json", "-n", cluster.nameserver, home=tmp_path)
    assert (status, errors) == (0, [])
    results = [json.loads(line) for line in output.splitlines()]
    stored = bodies(cluster, "T")
    assert [stored[int(result["queueOffset"])] for result in results] == lines
    assert len(stored) == 2000


def test_blank_lines_are_left_out_and_numbered(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    made(cluster, "T")
    status, output, errors = fed(b"one\n\ntwo\n\r\n", "send", "T", "-n", cluster.nameserver, home=tmp_path)
    assert (status, output.count("SEND_OK")) == (0, 2)
    assert errors == ["lines 2, 4 are blank and left out (2): RocketMQ takes no empty body"]
    assert sorted(bodies(cluster, "T")) == [b"one", b"two"]


def test_a_line_that_is_refused_is_numbered_and_ends_the_rest(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    made(cluster, "T")
    content = b"one\n" + b"x" * 5_000_000 + b"\nthree\n"
    status, output, errors = fed(content, "send", "T", "-n", cluster.nameserver, home=tmp_path)
    assert (status, output.count("SEND_OK"), len(errors)) == (1, 1, 1)
    assert errors[0].startswith("Error: line 2: ")
    assert errors[0].endswith("; nothing after line 2 was sent")
    assert bodies(cluster, "T") == [b"one"]


def test_a_line_is_sent_while_the_next_is_not_there(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    made(cluster, "T")
    process = started("send", "T", "-n", cluster.nameserver, home=tmp_path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("typed\n")
    process.stdin.flush()
    line_with("SEND_OK", process.stdout)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "", [])


def test_bytes_of_a_body_are_sent_as_they_are(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    made(cluster, "T")
    status, _, errors = ran("send", "T", "\udcff\udcfe", "-n", cluster.nameserver, home=tmp_path)
    assert (status, errors) == (0, [])
    assert bodies(cluster, "T") == [b"\xff\xfe"]


def test_deleting_what_is_not_there_says_so(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    def delete(*arguments: str) -> tuple[int, str, list[str]]:
        return ran("topic", "delete", *arguments, "-n", cluster.nameserver, home=tmp_path)

    assert delete("nosuch") == (1, "", ["Error: no broker has the topic nosuch; nothing is deleted"])
    made(cluster, "T")
    status, output, errors = delete("T", "--cluster", "Elsewhere")
    assert (status, output) == (1, "")
    assert errors == ["Error: no broker of Elsewhere has the topic T (DefaultCluster); nothing is deleted"]
    assert delete("T", "--yes") == (0, "topic T is deleted\n", [])


def test_an_unknown_topic_is_made_with_our_own_command(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    status, _, errors = ran("tail", "nosuch", "-n", cluster.nameserver, home=tmp_path)
    assert (status, len(errors)) == (1, 1)
    assert "pyrmq topic create nosuch" in errors[0]


def addresses(process: subprocess.Popen[str]) -> dict[str, str]:
    """Returns the addresses that `pyrmq dev` prints."""
    assert process.stdout is not None
    lines = []
    for line in iter(process.stdout.readline, ""):
        lines.append(line)
        if "Ctrl-C stops" in line:
            break
    rows = [line.replace("│", " ").split() for line in lines]
    return {row[0]: row[1] for row in rows if len(row) == 2 and row[1][-1:].isdigit()}


def test_dev_keeps_its_ports_with_its_stores_and_evaluates_sql(tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        process = started("dev", "--dir", str(tmp_path / "kept"), "--port", "0", "--host", "127.0.0.2", home=tmp_path)
        served = addresses(process)
        runs.append(served)
        with (
            Producer("G", nameserver=served["nameserver"]) as producer,
            PullConsumer("G", nameserver=served["nameserver"]) as consumer,
        ):
            producer.send(Message("T", b"body"))
            for queue in consumer.message_queues("T"):
                consumer.check_sql(queue, "a > 1")
        process.send_signal(signal.SIGINT)
        status, output, errors = ended(process)
        assert (status, errors) == (0, [])
        assert f"kept in {tmp_path / 'kept'}" in output.replace("\n", "")
    assert runs[0].keys() == {"nameserver", "broker-a", "broker-b"}
    assert runs[0] == runs[1]
    assert all(address.startswith("127.0.0.2:") for address in runs[0].values())


def test_dev_has_slaves_and_a_kept_master_waits_for_its_own(tmp_path: Path) -> None:
    options = ("--brokers", "1", "--slaves", "1", "--sync", "--dir", str(tmp_path / "kept"), "--port", "0")
    runs = []
    for _ in range(2):
        process = started("dev", *options, "--host", "127.0.0.2", home=tmp_path)
        served = addresses(process)
        runs.append(served)
        with Producer("G", nameserver=served["nameserver"]) as producer:
            assert producer.send(Message("T", b"body")).status is SendStatus.SEND_OK
        process.send_signal(signal.SIGINT)
        assert ended(process)[0] == 0
    assert runs[0].keys() == {"nameserver", "broker-a", "broker-a-1"}
    assert runs[0] == runs[1]
    logs = [
        next((tmp_path / "kept" / name / "commitlog").iterdir()).read_bytes() for name in ("broker-a", "broker-a-1")
    ]
    assert logs[0] == logs[1]
    assert logs[0].count(b"body") == 2


@pytest.mark.parametrize("options", [("--sync",), ("--slaves", "-1"), ("--slaves", "10"), ("--slaves", "one")])
def test_dev_refuses_wrong_slaves(options: tuple[str, ...], tmp_path: Path) -> None:
    status, output, errors = ran("dev", *options, home=tmp_path)
    assert (status, output) == (2, "")
    assert "--slaves" in errors[-1]


def test_dev_takes_another_port_where_its_own_is_taken(tmp_path: Path) -> None:
    with EmbeddedCluster(directory=tmp_path) as first:
        address = first.brokers["broker-a"]
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))), EmbeddedCluster(directory=tmp_path) as second:
        assert second.brokers["broker-a"] != address
    (tmp_path / "ports.json").write_text("[")
    with EmbeddedCluster(directory=tmp_path) as third:
        assert third.brokers


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "nowhere", ""])
def test_dev_refuses_an_address_that_clients_cannot_use(host: str, tmp_path: Path) -> None:
    status, output, errors = ran("dev", "--host", host, home=tmp_path)
    assert (status, output) == (2, "")
    assert "--host" in errors[-1]
