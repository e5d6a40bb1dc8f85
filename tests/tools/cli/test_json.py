"""`--json` on every command that calls servers: what a change prints, and that no command lacks it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.tools.cli.commands import pyrmq
from tests.support.commands import commands_of
from tests.support.terminal import Terminal

# A server's own log is its output; these print no table.
SERVERS = {"web", "nameserver", "broker"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in commands_of(command).items():
            yield from commands(inner, (*words, name))
    else:
        yield " ".join(words), command


def test_no_command_lacks_it() -> None:
    without = {
        words for words, command in commands(pyrmq) if not any("--json" in option.opts for option in command.params)
    }
    assert without <= SERVERS, without


def test_changes_are_rows(cluster: EmbeddedCluster) -> None:
    terminal = Terminal(cluster.nameserver)
    (address,) = cluster.brokers.values()
    expected: list[tuple[tuple[str, ...], list[dict[str, object]]]] = [
        (
            ("topic", "create", "T", "-r", "2", "-w", "2"),
            [{"brokerName": "broker-a", "master": address, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}],
        ),
        (("group", "create", "G"), [{"group": "G"}]),
        (("group", "create", "H"), [{"group": "H"}]),
        (("kv", "put", "N", "k", "v"), [{"namespace": "N", "key": "k", "value": "v"}]),
        (("kv", "get", "N", "k"), [{"key": "k", "value": "v"}]),
        (("kv", "delete", "N", "k"), [{"namespace": "N", "key": "k"}]),
        (
            ("broker", "config", "broker-a", "--set", "fileReservedTime=70"),
            [{"brokerName": "broker-a", "setting": "fileReservedTime", "value": "70"}],
        ),
        (
            ("nameserver", "config", "--set", "orderMessageEnable=true"),
            [{"setting": "orderMessageEnable", "value": "true"}],
        ),
        (("broker", "clean", "unused-topics", "--yes"), [{"brokerName": "broker-a", "cleaned": "unused-topics"}]),
        (("topic", "delete", "T", "--yes"), [{"topic": "T", "brokerName": "broker-a"}]),
        (("group", "delete", "G", "--yes"), [{"group": "G"}]),
    ]
    for words, rows in expected:
        assert terminal.rows(*words) == rows, words
    for change in ("wipe-write-perm", "add-write-perm"):
        (row,) = terminal.rows("broker", change, "broker-a")
        assert (row["nameserver"], row["brokerName"]) == (cluster.nameserver, "broker-a")
        assert isinstance(row["topics"], int)


def test_a_failure_prints_no_rows(cluster: EmbeddedCluster) -> None:
    failed = Terminal(cluster.nameserver).run("topic", "delete", "Nowhere", "--json")
    assert (failed.exit_code, failed.stdout) == (1, "")
    with pytest.raises(json.JSONDecodeError):
        json.loads(failed.output)
