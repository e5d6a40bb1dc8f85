"""Names of topics, groups, brokers and clusters in a shell's completion: from the servers, soon or not at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from click.shell_completion import ShellComplete

from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_core.tools.cli import name_completion
from pyrmq_core.tools.cli.commands import pyrmq
from tests.support.closed_port import closed_port
from tests.support.commands import commands
from tests.tools.cli.test_loading import SHELLS, ran

__all__ = ["closed_port"]


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    topics = {"orders": 1, "order-states": 1, "tenant%orders": 1, "%DLQ%billing": 1}
    with EmbeddedCluster(brokers=2, topics=topics) as cluster, Admin(nameserver=cluster.nameserver) as admin:
        admin.groups.create("billing")
        admin.groups.create("books")
        yield cluster.nameserver


def completed(words: str, nameserver: str) -> list[str]:
    """Returns the completions of the last of the words."""
    *arguments, incomplete = words.split(" ")
    position = 2 if arguments[0] in ("topic", "group", "broker", "dlq") else 1
    arguments[position:position] = ["-n", nameserver]
    return [item.value for item in ShellComplete(pyrmq, {}, "pyrmq", "").get_completions(arguments, incomplete)]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("topic delete ord", ["order-states", "orders"]),
        ("tail --from earliest ", ["order-states", "orders", "tenant%orders"]),
        ("tail --namespace tenant o", ["orders"]),
        ("send q", []),
        ("group describe b", ["billing", "books"]),
        ("group reset billing -t orders", ["orders"]),
        ("group clone billing bo", ["books"]),
        ("dlq list bi", ["billing"]),
        ("consume orders -g bo", ["books"]),
        ("broker config ", ["broker-a", "broker-b"]),
        ("group seek billing -b broker-b", ["broker-b"]),
        ("broker list -c D", ["DefaultCluster"]),
    ],
)
def test_names(words: str, names: list[str], nameserver: str) -> None:
    assert completed(words, nameserver) == names


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_a_name(shell: str, nameserver: str) -> None:
    environment = {"NAMESRV_ADDR": nameserver, "COMP_CWORD": "order-" if shell == "fish" else "2"}
    output, _ = ran(COMP_WORDS="pyrmq tail order-", _PYRMQ_COMPLETE=f"{shell}_complete", **environment)
    assert "order-states" in output
    assert "orders\n" not in output


def test_servers_that_are_gone_or_silent_complete_nothing(closed_port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_completion, "SECONDS", 0.2)
    assert completed("tail ", closed_port) == []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert completed("group describe ", f"127.0.0.1:{listener.getsockname()[1]}") == []


@pytest.mark.parametrize("arguments", ["tail -n not-an-address ", "tail --credentials /nowhere ", "tail --timeout x "])
def test_wrong_options_complete_nothing(arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    *words, incomplete = arguments.split(" ")
    assert ShellComplete(pyrmq, {}, "pyrmq", "").get_completions(words, incomplete) == []


def test_every_parameter_that_takes_a_name_completes_it() -> None:
    missing = [
        f"{words} {parameter.opts[0]}"
        for words, command in commands().items()
        for parameter in command.params
        if parameter.metavar in ("TOPIC", "GROUP", "BROKER", "[BROKER]")
        or {*parameter.opts} & {"topic", "group", "--cluster", "--broker"}
        if parameter._custom_shell_complete is None
    ]
    assert missing == []
