"""Commands that delete for good: they ask at a terminal, and take `--yes` elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core import Message, NoRoute
from pyrmq_core.blocking import Admin, EmbeddedCluster, LitePullConsumer, Producer
from tests.support.commands import PROGRAM
from tests.support.terminal import Terminal

DELETIONS = {
    "topic delete orders": "Delete topic orders with all its messages?",
    "group delete audit": "Delete group audit with its offsets, and the messages of %RETRY%audit and %DLQ%audit?",
    "broker clean unused-topics": "Delete the queues of all topics without settings, at all masters?",
    "acl user delete eve": "Remove user eve with its password and its policies?",
    "acl account delete key": "Remove account key with its secret and its rights?",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        yield cluster


def asked(cluster: EmbeddedCluster, words: str, answer: str, home: Path) -> tuple[int, str]:
    """Returns the exit status, and the standard error, of a command at a terminal where this answer is typed."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*PROGRAM, *words.split(), "-n", cluster.nameserver],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=home,
            env={**os.environ, "HOME": str(home)},
        )
        os.write(ours, f"{answer}\n".encode())
        _, errors = process.communicate(timeout=100)
    finally:
        os.close(ours)
        os.close(theirs)
    return process.returncode, errors


@pytest.mark.parametrize("words", DELETIONS)
def test_without_a_terminal_a_deletion_needs_yes(cluster: EmbeddedCluster, words: str) -> None:
    refused = Terminal(cluster.nameserver).refused(2, *words.split())
    assert refused == "Error: this deletion cannot be undone; without a terminal it needs --yes"


@pytest.mark.parametrize("words", DELETIONS)
def test_at_a_terminal_a_deletion_asks(cluster: EmbeddedCluster, tmp_path: Path, words: str) -> None:
    status, errors = asked(cluster, words, "n", tmp_path)
    assert status == 1
    assert errors.startswith(DELETIONS[words])
    assert errors.endswith("Error: nothing is deleted\n")


def test_a_yes_deletes(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("Asked", queues=1)
        admin.groups.create("asked")
        for words, answer, status in (("topic delete Asked", "n", 1), ("group delete asked", "n", 1)):
            assert asked(cluster, words, answer, tmp_path)[0] == status
        assert admin.route("Asked").queue_datas
        assert admin.groups.config("asked")
        for words in ("topic delete Asked", "group delete asked"):
            assert asked(cluster, words, "y", tmp_path)[0] == 0
        with pytest.raises(NoRoute):
            admin.route("Asked")
        assert not admin.groups.config("asked")


def test_a_topic_names_the_groups_that_are_connected(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    nameserver = cluster.nameserver
    with Producer("G", nameserver=nameserver) as producer:
        producer.send(Message("Read", b"one"))
    with Admin(nameserver=nameserver) as admin:
        admin.groups.create("offline")
        admin.groups.reset("offline", "Read", "earliest")
        with LitePullConsumer("online", nameserver=nameserver) as consumer:
            consumer.subscribe("Read")
            while not admin.groups.describe("online", running_info=False).subscriptions:
                consumer.poll(0.1)
            status, errors = asked(cluster, "topic delete Read", "n", tmp_path)
    assert (status, errors.splitlines()[0].partition("[")[0]) == (
        1,
        "Delete topic Read with all its messages? Members of online are connected and read it. ",
    )
