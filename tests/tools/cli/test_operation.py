"""`pyrmq broker` and `pyrmq nameserver` with commands, on a cluster in the process; and tables of all widths."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import EmbeddedCluster, Producer
from pyrmq_core.testing import Command, CutConnection, Peer, RequestCode
from pyrmq_core.tools.cli.tables import text_of
from tests.support.commands import ended, started
from tests.support.terminal import Terminal


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


async def cut(_request: Command, _peer: Peer) -> None:
    raise CutConnection


def test_the_list_of_brokers(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    first, second = terminal.rows("broker", "list")
    assert (first["brokerName"], first["brokerId"], first["address"]) == ("broker-a", 0, cluster.brokers["broker-a"])
    assert (first["reachable"], first["error"], second["cluster"]) == (True, None, "DefaultCluster")
    assert {"putTps", "getTps", "messagesPutToday", "messagesGotToday", "diskRatio", "booted"} < set(first)
    header, *lines = terminal.text("broker", "list").splitlines()
    assert header.split() == ["broker", "role", "address", "version", "in/s", "out/s", "disk", "state"]
    assert [line.split()[0] for line in lines] == ["broker-a", "broker-b"]
    assert [line.split()[-1] for line in lines] == ["ok", "ok"]
    assert terminal.refused(1, "broker", "list", "--cluster", "C").startswith("Error: no cluster is named C")


def test_a_broker_that_is_down_is_in_the_list() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        for code in RequestCode:
            cluster.control(code, cut, server="broker-b")
        terminal = Terminal(cluster.nameserver)
        up, down = terminal.rows("broker", "list")
        _, first, second, error = terminal.text("broker", "list").splitlines()
        address = cluster.brokers["broker-b"]
    assert (up["reachable"], down["reachable"], down["version"], down["putTps"]) == (True, False, None, None)
    assert address in str(down["error"])
    assert (first.split()[-1], second.split()[-1]) == ("ok", "unreachable")
    assert error == f"broker-b (0): {down['error']}"


def test_settings_of_a_broker(terminal: Terminal) -> None:
    settings = {row["setting"]: row["value"] for row in terminal.rows("broker", "config", "broker-a")}
    assert settings["brokerName"] == "broker-a"
    assert len(settings) > 100
    assert terminal.rows("broker", "config", "broker-b", "brokerName", "brokerId") == [
        {"setting": "brokerName", "value": "broker-b"},
        {"setting": "brokerId", "value": "0"},
    ]
    assert terminal.text("broker", "config", "broker-b", "--set", "fileReservedTime=31") == "changed at broker-b\n"
    assert (
        terminal.text("broker", "config", "--all", "--set", "fileReservedTime=32") == "changed at broker-a, broker-b\n"
    )
    in_cluster = ("broker", "config", "--cluster", "DefaultCluster", "--set", "fileReservedTime=33")
    assert terminal.text(*in_cluster) == "changed at broker-a, broker-b\n"
    assert terminal.rows("broker", "config", "broker-a", "fileReservedTime")[0]["value"] == "33"


@pytest.mark.parametrize(
    ("status", "arguments", "text"),
    [
        (1, "broker-a noSuchSetting", "broker-a lists no setting noSuchSetting"),
        (1, "broker-a --set noSuchSetting=1", "lists no setting noSuchSetting; nothing is changed"),
        (1, "broker-a --set fileReservedTime=x", "fileReservedTime"),
        (1, "broker-x", "no broker is named broker-x"),
        (1, "broker-a --id 3", "no server with the id 3"),
        (2, "", "name the BROKER"),
        (2, "--all", "name the BROKER"),
        (2, "--set fileReservedTime=1", "one of BROKER, --cluster and --all"),
        (2, "broker-a --all --set fileReservedTime=1", "one of BROKER, --cluster and --all"),
        (2, "broker-a --set fileReservedTime", "is not NAME=VALUE"),
        (2, "broker-a --set =1", "is not NAME=VALUE"),
        (2, "broker-a brokerName --set fileReservedTime=1", "shows nothing"),
    ],
)
def test_settings_that_are_wrong(terminal: Terminal, status: int, arguments: str, text: str) -> None:
    assert text in terminal.refused(status, "broker", "config", *arguments.split())


def test_figures_of_a_broker(terminal: Terminal, cluster: EmbeddedCluster) -> None:
    figures = {row["figure"]: row["value"] for row in terminal.rows("broker", "stats", "broker-a")}
    assert figures["brokerActive"] == "true"
    assert figures["commitLogDirCapacity"].startswith("Total : ")  # type: ignore[attr-defined]  # a text
    missing = terminal.refused(1, "broker", "stats", "broker-a", "TOPIC_PUT_NUMS", "Counted")
    assert missing == "Error: broker-a has no figure TOPIC_PUT_NUMS of Counted: nothing of it was counted yet"
    assert "needs a KEY" in terminal.refused(2, "broker", "stats", "broker-a", "TOPIC_PUT_NUMS")
    terminal.text("topic", "create", "Counted", "-w", "1")
    with Producer("G", nameserver=cluster.nameserver) as producer:
        for _ in range(4):
            producer.send(Message("Counted", b"x"))
    periods = terminal.rows("broker", "stats", "broker-a", "TOPIC_PUT_NUMS", "Counted")
    assert [row["period"] for row in periods] == ["minute", "hour", "day"]
    assert set(periods[0]) == {"period", "sum", "tps", "average"}


def test_clean_up_and_writing(terminal: Terminal) -> None:
    for what in ("unused-topics", "expired-queues", "expired-logs"):
        assert terminal.text("broker", "clean", what, "--yes") == f"{what}: done at broker-a, broker-b\n"
    assert terminal.text("broker", "clean", "expired-logs", "broker-b") == "expired-logs: done at broker-b\n"
    assert terminal.refused(2, "broker", "clean", "everything").startswith("Error: Invalid value for")
    terminal.text("topic", "create", "Closed", "-w", "1", "-r", "1")
    assert terminal.text("broker", "wipe-write-perm", "broker-a").startswith("broker-a is closed for writing at Name")
    assert {row["brokerName"]: row["perm"] for row in terminal.rows("topic", "route", "Closed")} == {
        "broker-a": 4,
        "broker-b": 6,
    }
    assert terminal.text("broker", "add-write-perm", "broker-a").startswith("broker-a is open for writing at Name")
    assert {row["perm"] for row in terminal.rows("topic", "route", "Closed")} == {6}


def test_slaves_of_a_broker() -> None:
    with EmbeddedCluster(slaves=1) as cluster:
        cluster.wait_for_slaves()
        terminal = Terminal(cluster.nameserver)
        assert [row["brokerId"] for row in terminal.rows("broker", "list")] == [0, 1]
        assert [line.split()[1:3] for line in terminal.text("broker", "list").splitlines()[2:]] == [["slave", "1"]]
        (slave,) = terminal.rows("broker", "ha", "broker-a")
        assert set(slave) == {"slave", "inSync", "behindBytes", "bytesPerSecond"}
        (master,) = terminal.rows("broker", "ha", "broker-a", "--id", "1")
        assert set(master) == {"master", "maxOffset"}


def test_settings_of_nameservers(terminal: Terminal, cluster: EmbeddedCluster) -> None:
    assert terminal.rows("nameserver", "config", "orderMessageEnable") == [
        {"nameserver": cluster.nameserver, "setting": "orderMessageEnable", "value": "false"}
    ]
    assert len(terminal.rows("nameserver", "config")) > 20
    changed = terminal.text("nameserver", "config", "--set", "orderMessageEnable=true")
    assert changed == f"changed at {cluster.nameserver}\n"
    assert terminal.rows("nameserver", "config", "orderMessageEnable")[0]["value"] == "true"
    assert "lists no setting nothing" in terminal.refused(1, "nameserver", "config", "nothing")
    assert "lists no setting nothing" in terminal.refused(1, "nameserver", "config", "--set", "nothing=1")
    assert "shows nothing" in terminal.refused(2, "nameserver", "config", "one", "--set", "two=1")


def test_a_nameserver_that_is_away_ends_the_command_with_1(cluster: EmbeddedCluster) -> None:
    with EmbeddedCluster() as other:
        both = f"{cluster.nameserver};{other.nameserver}"
        away = other.nameserver
        assert len(Terminal(both).rows("nameserver", "config", "listenPort")) == 2
    result = Terminal(both).run("nameserver", "config", "listenPort")
    assert result.exit_code == 1
    assert result.output.count("listenPort") == 1
    assert away in result.output


@pytest.mark.parametrize("server", ["broker", "nameserver"])
def test_servers_are_run_by_the_same_name(server: str, tmp_path: Path) -> None:
    """Their own arguments begin with a dash, and are passed on as they are."""
    file = tmp_path / "server.conf"
    file.write_text("listenPort=0\n")
    status, output, _ = ended(started(server, "-p", "-c", str(file), home=tmp_path))
    assert (status, "listenPort=0" in output) == (0, True)
    process = started(server, "-c", str(file), home=tmp_path)
    assert process.stdout is not None
    assert any("boot success" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 0
    status, output, _ = ended(started(server, "--help", home=tmp_path))
    assert (status, "--configFile" in output, "config" in output.partition("Commands:")[2]) == (0, True, True)
    status, _, errors = ended(started(server, "nothing", home=tmp_path))
    assert (status, errors[-1]) == (2, "Error: No such command 'nothing'.")
    status, _, errors = ended(started(server, "--nothing", home=tmp_path))
    assert (status, "unrecognized arguments: --nothing" in errors[-1]) == (2, True)


def test_a_watched_table_comes_again_and_outlives_its_nameserver(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        address = cluster.nameserver
        watch = ("broker", "list", "--watch", "--interval", "0.1", "--json", "-n", address)
        process = started(*watch, home=tmp_path)
        assert process.stdout is not None
        for _ in range(3):
            assert json.loads(process.stdout.readline())[0]["brokerName"] == "broker-a"
    lines = iter(process.stdout.readline, "")
    assert next(line for line in lines if line.startswith("Error: ")).count(address) == 1
    assert next(lines).startswith("Error: ")
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


ROWS = [
    {"name": "broker-a", "address": "192.168.100.200:10911", "count": 5, "rate": 1.25, "note": None},
    {"name": "[red]b[/red]", "address": "192.168.100.201:10911", "count": 12345, "rate": 0.0, "note": "a few words"},
]


def lines_of(monkeypatch: pytest.MonkeyPatch, columns: int | None) -> list[str]:
    """Returns the lines of a table on a terminal so wide, or through a pipe."""
    for name in ("FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    if columns is not None:
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
    return re.sub("\x1b\\[[0-9;]*m", "", text_of(ROWS, list(ROWS[0]), as_json=False)).splitlines()


def test_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    header, first, second = lines_of(monkeypatch, None)
    assert header.split() == ["name", "address", "count", "rate", "note"]
    assert first.split() == ["broker-a", "192.168.100.200:10911", "5", "1.2"]
    assert second.split() == ["[red]b[/red]", "192.168.100.201:10911", "12345", "0.0", "a", "few", "words"]
    assert first.index("5 ", 40) == second.index("12345") + 4  # numbers stand at the right


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 200])
def test_a_table_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    lines = lines_of(monkeypatch, columns)
    assert all(len(line) <= columns for line in lines)
    for row in ROWS:
        for value in (row["name"], row["address"], row["count"]):
            assert any(str(value) in line for line in lines), value  # no word is broken
    assert (lines[0].split() == ["name", "broker-a"]) is (columns < 60)


def test_a_cell_steers_no_terminal() -> None:
    assert text_of([{"name": "a\x1b[2Jb\nc\u202e"}], ["name"], as_json=False) == ("name\na\\x1b[2Jb\\nc\\u202e\n")


def test_a_table_of_ten_thousand_rows_takes_less_than_a_second() -> None:
    rows = [{"broker": f"broker-{number % 9}", "queue": number, "offset": number * 7} for number in range(10_000)]
    began = time.process_time()
    assert text_of(rows, list(rows[0]), as_json=False).count("\n") == 10_001
    assert time.process_time() - began < 1
