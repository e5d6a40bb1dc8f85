"""Tables that are made again and again: what a terminal has no room for is counted, and `top` shows users' groups."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_core.protocol.messages.names import is_system_group
from pyrmq_core.tools.cli.drawn_tables import cut_to_height
from tests.support.commands import PROGRAM, ended
from tests.support.terminal import Terminal


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, topics={"orders": 1, "%RETRY%billing": 1}) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("1\n2\n3\n", ["1", "2", "3"]),
        ("1\n2\n3\n4\n5\n6\n", ["1", "2", "3", "... 3 lines more than this terminal has room for"]),
        ("x" * 100 + "\n2\n3\n", ["x" * 50, "x" * 50, "2", "3"]),
        ("x" * 200 + "\n2\n", ["x" * 50, "x" * 50, "x" * 50, "... 2 lines more than this terminal has room for"]),
    ],
)
def test_lines_beyond_the_terminal_are_counted(text: str, lines: list[str]) -> None:
    console = Console(width=50, height=4, file=io.StringIO(), force_terminal=True)
    assert cut_to_height(console, text).plain.splitlines() == lines


def test_a_watched_table_says_that_it_is_cut(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "broker", "list", "--watch", "--interval", "0.1", "-n", cluster.nameserver],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path), "COLUMNS": "120", "LINES": "2", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = ""
    try:
        while "2 lines more than this terminal has room for" not in shown:
            shown += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        status, _, errors = ended(process)
    finally:
        process.kill()
        os.close(ours)
    assert (status, errors) == (130, [])
    assert "broker-a" not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def test_top_shows_groups_and_topics_of_users(cluster: EmbeddedCluster) -> None:
    terminal = Terminal(cluster.nameserver)
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.groups.create("billing")
        for topic in ("%RETRY%billing", "orders"):
            admin.groups.reset("billing", topic, "earliest")
    assert any(is_system_group(str(row["group"])) for row in terminal.rows("group", "list", "-a"))
    (group,) = json.loads(terminal.text("top", "--once", "--json"))["groups"]
    assert (group["group"], group["topics"]) == ("billing", ["%RETRY%billing", "orders"])
    text = terminal.text("top", "--once")
    assert "1 groups, lag 0" in text.splitlines()[0]
    assert text.splitlines()[-1].split() == ["billing", "0", "0", "orders"]
    assert "%RETRY%" not in text
