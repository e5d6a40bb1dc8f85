"""`pyrmq topic`, `cluster`, `kv`, `send`, `tail` on a cluster in the process: their output, and their failures."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_core.tools.cli.commands import pyrmq


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


class Terminal:
    """Runs commands against one NameServer."""

    def __init__(self, nameserver: str) -> None:
        self._environment = {"NAMESRV_ADDR": nameserver}

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(pyrmq, arguments, env=self._environment)

    def text(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = json.loads(self.text(*arguments, "--json"))
        return rows


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


def test_the_cluster(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    assert terminal.rows("cluster") == [
        {"cluster": "DefaultCluster", "brokerName": name, "brokerId": 0, "address": address}
        for name, address in sorted(cluster.brokers.items())
    ]
    lines = terminal.text("cluster").splitlines()
    assert lines[0].split() == ["cluster", "brokerName", "brokerId", "address"]
    assert lines[1].split()[-1] == cluster.brokers["broker-a"]


def test_a_topic_from_its_making_to_its_end(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    assert terminal.text("topic", "create", "Made", "-r", "4", "-w", "2").startswith("topic Made is there: 4 queues")
    assert terminal.rows("topic", "route", "Made") == [
        {"brokerName": name, "master": address, "readQueueNums": 4, "writeQueueNums": 2, "perm": 6}
        for name, address in sorted(cluster.brokers.items())
    ]
    assert terminal.rows("topic", "list") == [{"topic": "Made"}]
    everything = {row["topic"] for row in terminal.rows("topic", "list", "-a")}
    assert {"Made", "TBW102", "DefaultCluster", "broker-a"} <= everything
    assert {row["topic"] for row in terminal.rows("topic", "list", "-a", "--cluster", "DefaultCluster")} == everything
    for body in ("one", "two", "three"):
        terminal.text("send", "Made", body)
    stats = terminal.rows("topic", "stats", "Made")
    assert len(stats) == 8
    assert sum(int(str(row["messages"])) for row in stats) == 3
    assert len(terminal.text("tail", "Made", "--from", "earliest", "--json").splitlines()) == 3
    assert terminal.text("topic", "delete", "Made", "--yes") == "topic Made is deleted\n"
    assert terminal.rows("topic", "list") == []


def test_values_of_every_nameserver(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    with EmbeddedCluster(brokers=1) as other:
        both = Terminal(f"{cluster.nameserver};{other.nameserver}")
        both.text("kv", "put", "ORDER_TOPIC_CONFIG", "T", "broker-a:2")
        for nameserver in (cluster.nameserver, other.nameserver):
            with Admin(nameserver=nameserver) as admin:
                assert admin.kv_values("ORDER_TOPIC_CONFIG") == {"T": "broker-a:2"}
                assert admin.kv_value("ORDER_TOPIC_CONFIG", "U") is None
        assert terminal.text("kv", "get", "ORDER_TOPIC_CONFIG", "T") == "broker-a:2\n"
        assert terminal.rows("kv", "list", "ORDER_TOPIC_CONFIG") == [{"key": "T", "value": "broker-a:2"}]
        both.text("kv", "delete", "ORDER_TOPIC_CONFIG", "T")
        assert terminal.rows("kv", "list", "ORDER_TOPIC_CONFIG") == []
        missing = terminal.run("kv", "get", "ORDER_TOPIC_CONFIG", "T")
    assert (missing.exit_code, missing.output) == (1, "Error: namespace ORDER_TOPIC_CONFIG has no key T\n")
    assert terminal.rows("kv", "list", "nowhere") == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("topic", "route", "Nowhere"), "Nowhere"),
        (("topic", "create", "TBW102"), "RocketMQ's own"),
        (("topic", "create", "T", "--cluster", "Elsewhere"), "no cluster is named Elsewhere"),
        (("topic", "stats", "Nowhere"), "Nowhere"),
    ],
)
def test_a_failure_is_one_line_and_ends_with_1(terminal: Terminal, arguments: tuple[str, ...], text: str) -> None:
    failed = terminal.run(*arguments)
    assert failed.exit_code == 1
    assert text in failed.output
    assert failed.output.count("\n") == 1


def test_without_a_nameserver_it_says_what_to_give() -> None:
    failed = Terminal("").run("cluster")
    assert failed.exit_code == 1
    assert "no NameServer is named" in failed.output


@pytest.mark.parametrize("arguments", [("topic", "create", "T", "-w", "0"), ("topic", "make", "T"), ("kv", "put", "N")])
def test_wrong_use_ends_with_2(terminal: Terminal, arguments: tuple[str, ...]) -> None:
    assert terminal.run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        "dev",
        "web",
        "send",
        "tail",
        "consume",
        "cluster",
        *(f"topic {name}" for name in ("list", "route", "create", "delete", "stats", "schema")),
        *(f"kv {name}" for name in ("get", "put", "delete", "list")),
    ],
)
def test_every_command_has_help(command: str) -> None:
    shown = CliRunner().invoke(pyrmq, [*command.split(), "--help"])
    assert shown.exit_code == 0
    assert shown.output.startswith("Usage: ")
