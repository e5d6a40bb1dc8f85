"""Every command, as a process, ends with one line and its status: port taken, interrupt, pipe closed, server gone."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from pyrmq_core import Message, NetworkError
from pyrmq_core import embedded as embedded_async
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.tools.cli.servers import run
from tests.support import commands
from tests.support.closed_port import closed_port
from tests.support.commands import asks_servers, ended, filled, listens, started, with_closed_pipe
from tests.support.terminal import Terminal

__all__ = ["closed_port"]

ASKING = [words for words, command in commands.commands().items() if asks_servers(command)]
SERVERS = [words for words, command in commands.commands().items() if listens(command)]
# Its output is its findings, among them a server that is gone.
REPORTING = {"doctor"}
SHARES = 10
# A server's log goes to standard error, too.
LOG_LINES = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(commands.ENDS_WITHIN)
        yield server


def port_of(listener: socket.socket) -> str:
    return str(listener.getsockname()[1])


def test_every_command_is_one_or_the_other() -> None:
    assert set(ASKING) | set(SERVERS) == set(commands.commands())
    assert {"topic list", "tail", "send", "kv put"} <= set(ASKING)
    assert {"dev", "broker", "nameserver", "web"} == set(SERVERS)


@pytest.mark.parametrize("words", ASKING)
def test_a_server_that_is_gone(words: str, closed_port: str) -> None:
    result = Terminal(closed_port).run(*filled(words, "T"))
    errors = result.stderr.splitlines()
    said = result.stdout.splitlines() if words in REPORTING else errors
    assert (result.exit_code, bool(result.stdout)) == (1, words in REPORTING)
    assert [closed_port in line for line in said].count(True) == 1
    assert len(errors) <= 1


@pytest.mark.parametrize("words", SERVERS)
def test_a_port_that_is_taken(words: str, listener: socket.socket, tmp_path: Path) -> None:
    status, output, errors = ended(started(*words.split(), "--port", port_of(listener), home=tmp_path))
    assert (status, output) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port_of(listener)}" in errors[-1]
    assert len(errors) <= (1 if words == "dev" else LOG_LINES)


# All of them end in one place, and `make soak` has the others.
@pytest.mark.parametrize(
    "words", [pytest.param(w, marks=[pytest.mark.soak] * bool(number % SHARES)) for number, w in enumerate(ASKING)]
)
def test_an_interrupt_while_it_waits(words: str, listener: socket.socket, tmp_path: Path) -> None:
    process = started(*filled(words, "T"), "-n", f"127.0.0.1:{port_of(listener)}", home=tmp_path)
    connection, _ = listener.accept()
    with connection:
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, "", [])


def test_an_interrupt_is_raised_where_the_command_waits_and_nowhere_else() -> None:
    """Between two instructions it could lose a task that is just being made."""
    steps: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("went on")
        try:
            await trio.sleep_forever()
        finally:
            steps.append("ended")

    with pytest.raises(KeyboardInterrupt):
        run(work)
    assert steps == ["went on", "ended"]


@pytest.mark.parametrize("words", SERVERS)
def test_an_interrupt_stops_a_server_in_order(words: str, tmp_path: Path) -> None:
    process = started(*words.split(), "--port", "0", home=tmp_path)
    assert process.stdout is not None
    assert any("boot success" in line or "Ctrl-C stops" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGINT)
    status, _, errors = ended(process)
    assert status == 0
    assert len(errors) <= LOG_LINES


@pytest.mark.parametrize("words", SERVERS)
def test_a_server_whose_output_is_closed(words: str, tmp_path: Path) -> None:
    status, _, errors = ended(with_closed_pipe(*words.split(), "--port", "0", home=tmp_path))
    assert status == 141
    assert len(errors) <= LOG_LINES


@pytest.mark.timeout(900)  # each command is a process of its own
@pytest.mark.parametrize("share", [0, *(pytest.param(share, marks=pytest.mark.soak) for share in range(1, SHARES))])
def test_an_output_that_is_closed(share: int, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    address = cluster.nameserver
    # Without users and accounts, this broker refuses these; and there is no member.
    asking = [words for words in ASKING if not words.startswith("acl ") and words != "group stack"][share::SHARES]
    values = {(words, closed): f"{words.replace(' ', '-')}-{closed}" for words in asking for closed in (True, False)}
    with Admin(nameserver=address) as admin, Producer("G", nameserver=address) as producer:
        for value in values.values():
            admin.create_topic(value, queues=1)
            producer.send(Message(value, b"body"))
            admin.put_kv(value, value, value)
            admin.groups.create(value)
            admin.groups.reset(value, value, "earliest")
    # Each takes a second. All of them end in one place, and `make soak` has the others.
    for words in asking:
        closed = with_closed_pipe(*filled(words, values[words, True]), "-n", address, home=tmp_path)
        plain = Terminal(address).run(*filled(words, values[words, False]))
        assert (words, plain.stderr) == (words, "")
        assert plain.exit_code == 0 or words in REPORTING
        assert (words, *ended(closed)) == (words, 141 if plain.stdout else 0, "", [])


# The outermost help, a group's, that of a command which is loaded at once, one that is not, and a server's own.
@pytest.mark.parametrize("words", ["", "topic", "topic list", "send", "doctor", "dev", "broker"])
def test_help_whose_output_is_closed(words: str, tmp_path: Path) -> None:
    status, _, errors = ended(with_closed_pipe(*words.split(), "--help", home=tmp_path))
    assert (status, errors) == (141, [])


@pytest.mark.parametrize("words", ["broker", "nameserver"])
def test_settings_whose_output_is_closed(words: str, tmp_path: Path) -> None:
    assert ended(with_closed_pipe(words, "-p", home=tmp_path)) == (141, "", [])


@pytest.mark.parametrize("words", ["broker", "nameserver"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"listenPort=x\n", "listenPort"),
        (b"listenPort=\xff\n", "server.conf"),
        (b"tls.server.mode=enforcing\ntls.server.certPath=/nowhere\nlistenPort=0\n", "tls"),
    ],
)
def test_settings_that_cannot_be_used(words: str, content: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "server.conf").write_bytes(content)
    status, _, errors = ended(started(words, "-c", str(tmp_path / "server.conf"), home=tmp_path))
    assert status == 1
    assert text in errors[-1]
    assert len(errors) <= LOG_LINES


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_store_that_cannot_be_used(place: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    (tmp_path / "server.conf").write_text(f"listenPort=0\nstorePathRootDir={tmp_path / place}\n")
    status, _, errors = ended(started("broker", "-c", str(tmp_path / "server.conf"), home=tmp_path))
    assert status == 1
    assert str(file) in errors[-1]
    assert len(errors) <= LOG_LINES


async def test_a_cluster_on_a_taken_port_fails_with_the_error_itself(listener: socket.socket) -> None:
    with pytest.raises(NetworkError, match="cannot listen on"):
        async with embedded_async.EmbeddedCluster(port=int(port_of(listener))):
            await trio.lowlevel.checkpoint()
