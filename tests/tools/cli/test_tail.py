"""`pyrmq tail` as a process: where it begins, which queues and messages it prints, and in which form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core import CommitRecord, InvalidArgument, Message, MessageQueue, StoredRange, commit_messages
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.tools.search.ranges import queues_named
from tests.support.commands import ran

QUEUES = [MessageQueue("T", broker, number) for broker in ("broker-a", "broker-b") for number in range(2)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers with two queues each; queue i of broker j has the messages `j i 0` to `j i 4`."""
    settings = {"enablePropertyFilter": "true"}
    with EmbeddedCluster(brokers=2, topics={"T": 2, "Copies": 1}, settings=settings) as cluster:
        with Producer("G", nameserver=cluster.nameserver) as producer:
            for queue in producer.message_queues("T"):
                for number in range(5):
                    body = f"{queue.broker_name[-1]}{queue.queue_id}{number}".encode()
                    amount = {"amount": str(number)}
                    producer.send(Message("T", body, tags="t", keys="k", properties=amount), queue=queue)
        yield cluster


def tail(cluster: EmbeddedCluster, home: Path, *options: str, topic: str = "T") -> tuple[list[str], list[str]]:
    """Returns the sorted lines of the output, and those of standard error."""
    status, output, errors = ran("tail", topic, "-n", cluster.nameserver, *options, home=home)
    assert status == 0, errors
    return sorted(output.splitlines()), errors


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (("--offset", "-1"), ["a04", "a14", "b04", "b14"]),
        (("--offset", "4"), ["a04", "a14", "b04", "b14"]),
        (("--offset", "-100", "--queue", "broker-a/1"), ["a10", "a11", "a12", "a13", "a14"]),
        (("--offset", "3", "--queue", "0"), ["a03", "a04", "b03", "b04"]),
        (("--queue", "broker-b", "--sql", "amount = '2'"), ["b02", "b12"]),
        (("--queue", "broker-b/0", "--queue", "broker-a/1", "--offset", "-1"), ["a14", "b04"]),
    ],
)
def test_a_tail_begins_and_chooses(
    cluster: EmbeddedCluster, tmp_path: Path, options: tuple[str, ...], lines: list[str]
) -> None:
    assert tail(cluster, tmp_path, *options, "-o", "raw") == (lines, [])


def test_an_offset_that_a_queue_does_not_have_is_reported(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lines, errors = tail(cluster, tmp_path, "--offset", "9", "--queue", "broker-a/0")
    assert lines == []
    assert errors == [
        "broker-a/0 has the offsets 0 to 4, not 9: reading begins at 5",
        "--queue broker-a/0 of topic T holds 5 messages, none of them from offset 9 on",
    ]


def test_a_group_says_where_it_goes_on_and_stays_there(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with PullConsumer("billing", nameserver=cluster.nameserver) as consumer:
        queues = consumer.message_queues("T")
        consumer.commit_offsets({queues[0]: 3, queues[1]: 5})
        lines, errors = tail(cluster, tmp_path, "-g", "billing", "--from", "latest", "-o", "{body}")
        assert (lines, errors) == (["a03", "a04"], [])
        assert consumer.committed(queues[0]) == 3
    lines, errors = tail(cluster, tmp_path, "-g", "billing", "--queue", "broker-a/1")
    assert lines == []
    assert errors == ["--queue broker-a/1 of topic T holds 5 messages, none of them after the offsets of group billing"]


@pytest.mark.parametrize("command", [("tail",), ("consume", "--from", "earliest", "--max", "1", "-g")])
def test_a_stranger_does_not_steer_the_terminal(
    cluster: EmbeddedCluster, tmp_path: Path, command: tuple[str, ...]
) -> None:
    topic = f"Strange-{command[0]}"
    with Producer("G", nameserver=cluster.nameserver) as producer:
        producer.send(Message(topic, b"\x1b]52;c;Y2F0\x07\xc2\x9b2J", tags="\x1b[8m"))
    for options, shown in (((), r"\x1b[8m \x1b]52;c;Y2F0\x07\x9b2J"), (("--raw",), "\x1b[8m \x1b]52;c;Y2F0\x07\x9b2J")):
        group = (f"g{len(options)}",) if command[0] == "consume" else ()
        words = (*command, *group, topic, "-n", cluster.nameserver, *options)
        status, output, _ = ran(*words, home=tmp_path)
        assert (status, output.partition(" ")[2]) == (0, f"{shown}\n")


def test_what_json_prints_is_sent_again(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lines, _ = tail(cluster, tmp_path, "-o", "json")
    words = ("send", "Copies", "--input", "json", "-q", "-n", cluster.nameserver)
    assert ran(*words, home=tmp_path, stdin="\n".join(lines).encode())[0] == 0
    copies, _ = tail(cluster, tmp_path, "--json", topic="Copies")
    first, second = ([json.loads(line) for line in texts] for texts in (lines, copies))
    kept = ("body", "tags", "keys")
    assert sorted([row[name] for name in kept] for row in second) == sorted(
        [row[name] for name in kept] for row in first
    )
    assert {row["properties"]["amount"] for row in second} == {"0", "1", "2", "3", "4"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--offset", "1", "--from", "earliest"), "--offset excludes --from and -g"),
        (("--offset", "1", "-g", "g"), "--offset excludes --from and -g"),
        (("--tags", "a", "--sql", "b = 1"), "exclude each other"),
        (("--sql", "amount >"), "amount >"),
        (("--queue", "7"), "queue 7: the topic has no such queue to read; it has broker-a/0, broker-a/1, broker-b/0"),
        (("-o", "{bodies}"), "there is no field {bodies}"),
        (("--from", "yesterday"), "earliest, latest or an ISO-8601 time"),
        (("--committed", "--queue", "0"), "--committed excludes --offset, -g, --queue, --lite-topic and filters"),
        (("--committed",), "T-committed"),
    ],
)
def test_wrong_options_are_named(cluster: EmbeddedCluster, tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    status, output, errors = ran("tail", "T", "-n", cluster.nameserver, *options, home=tmp_path)
    assert (status > 0, output) == (True, "")
    assert text in re.sub(r"\s+", " ", errors[-1])


def test_committed_rows_alone(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with Producer("G", nameserver=cluster.nameserver) as producer, Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("Copies-committed", queues=1, broker="broker-a")
        results = [producer.send(Message("Copies", b"row %d" % number)) for number in range(6)]
        for number, result in enumerate(results[:4]):
            stored = StoredRange(result.message_queue, result.queue_offset, 1, result.msg_id, result.msg_id)
            batch = CommitRecord("w", number, 1, (stored,), number, "c")
            for message in commit_messages(batch, "Copies-committed"):
                producer.send(message, queue=MessageQueue("Copies-committed", "broker-a", 0))
    lines, _ = tail(cluster, tmp_path, "--committed", "-o", "{body}", topic="Copies")
    assert lines == ["row 0", "row 1", "row 2", "row 3"]
    assert len(tail(cluster, tmp_path, "--committed", "--max", "3", topic="Copies")[0]) == 3


def test_queues_are_chosen_by_broker_number_or_both() -> None:
    assert queues_named(QUEUES, ()) == QUEUES
    assert queues_named(QUEUES, ("broker-b", "0")) == [QUEUES[0], QUEUES[2], QUEUES[3]]
    assert queues_named(QUEUES, ("broker-a/1",)) == [QUEUES[1]]
    with pytest.raises(InvalidArgument, match="no such queue"):
        queues_named(QUEUES, ("0", "broker-c/0"))
