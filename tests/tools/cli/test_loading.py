"""The modules that the command loads: its help, its version and the completion of names none of client and servers."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from pyrmq_core.tools.cli.commands import COMMANDS, pyrmq
from tests.support.closed_port import closed_port
from tests.support.commands import commands_of

__all__ = ["closed_port"]

HEAVY = {"trio", "rich", "asyncio", "importlib.metadata"}
ROOMS = ("servers", "embedded", "client", "network", "protocol", "tools.web")
# Values and texts without connections.
LIGHT = {
    "pyrmq_core.network",
    "pyrmq_core.network.log_lines",
    "pyrmq_core.protocol",
    "pyrmq_core.protocol.messages",
    "pyrmq_core.protocol.messages.names",
    "pyrmq_core.protocol.shown_values",
}
RUN = """
import sys
from pyrmq_core.tools.cli import main
sys.argv = ["pyrmq", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
SHELLS = ("bash", "zsh", "fish")
# Their help begins with that of the server's own program.
SERVERS = ("broker", "nameserver")


def ran(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Returns what the command prints, and the modules that it loaded."""
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, env={**os.environ, **environment})
    return done.stdout, set(done.stderr.split())


def heavy_in(modules: set[str]) -> set[str]:
    packages = tuple(f"pyrmq_core.{room}" for room in ROOMS)
    return {name for name in modules if (name in HEAVY or name.startswith(packages)) and name not in LIGHT}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(("--version",), "pyrmq, version 0."), (("--help",), "Print the messages of a topic"), ((), "Usage: pyrmq")],
)
def test_help_and_version_load_no_command(arguments: tuple[str, ...], text: str) -> None:
    output, modules = ran(*arguments)
    if arguments:
        assert text in output
    assert {name for name in modules if name.startswith("pyrmq_core.tools.cli.")} == {"pyrmq_core.tools.cli.commands"}
    assert heavy_in(modules) == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_of_commands_loads_no_command(shell: str) -> None:
    words = {"COMP_WORDS": "pyrmq to", "COMP_CWORD": "to" if shell == "fish" else "1"}
    output, modules = ran(**words, _PYRMQ_COMPLETE=f"{shell}_complete")
    assert ("topic" in output, "top" in output, "tail" in output) == (True, True, False)
    assert {name for name in modules if name.startswith("pyrmq_core.tools.cli.")} == {"pyrmq_core.tools.cli.commands"}
    assert heavy_in(modules) == set()


@pytest.mark.parametrize("words", ["topic", "group", "broker", "kv", "acl user", "nameserver"])
def test_completion_below_a_group_loads_no_client(words: str) -> None:
    """Help and completion of what a command has need its parameters alone."""
    position = str(len(words.split()) + 1)
    output, modules = ran(COMP_WORDS=f"pyrmq {words} ", COMP_CWORD=position, _PYRMQ_COMPLETE="bash_complete")
    assert "plain,list" in output or "plain,config" in output or "plain,get" in output
    assert heavy_in(modules) == set()


@pytest.mark.parametrize("words", ["topic create", "group reset", "kv put", "broker list", "clients", "cluster"])
def test_completion_of_options_loads_no_client(words: str) -> None:
    position = str(len(words.split()) + 1)
    output, modules = ran(COMP_WORDS=f"pyrmq {words} --", COMP_CWORD=position, _PYRMQ_COMPLETE="bash_complete")
    assert "plain,--namespace" in output
    assert heavy_in(modules) == set()
    help_text, modules = ran(*words.split(), "--help")
    assert "--namespace" in help_text
    assert heavy_in(modules) == set()


@pytest.mark.parametrize("words", [*(name for name in COMMANDS if name not in SERVERS), "dlq list", "dlq resend"])
def test_help_of_a_command_loads_no_client(words: str) -> None:
    """Help of tail, send, consume, query, dlq, doctor, health, top, web and dev took a second of a processor."""
    help_text, modules = ran(*words.split(), "--help")
    assert f"Usage: pyrmq {words} " in help_text
    assert heavy_in(modules) == set()


def test_the_table_names_what_each_module_has() -> None:
    loaded = commands_of(pyrmq)
    assert list(loaded) == sorted(COMMANDS)
    assert {name: command.name for name, command in loaded.items()} == {name: name for name in COMMANDS}
    assert all(len(command.sentence) <= 60 for command in COMMANDS.values())
    assert all(isinstance(command, click.Command) for command in loaded.values())


def test_no_command_loads_a_server_before_it_starts_it() -> None:
    load = "import sys; from pyrmq_core.tools.cli.commands import *; [c.load() for c in COMMANDS.values()]"
    code = f"{load}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=50).split()
    assert not {"pyrmq_core.servers.broker", "pyrmq_core.servers.nameserver", "pyrmq_core.embedded"} & set(loaded)


@pytest.mark.parametrize("library", ["rich", "trio"])
def test_a_library_that_is_missing_is_named(library: str, closed_port: str) -> None:
    """A command's module needs it, or only its work."""
    code = f"import sys; sys.modules['{library}'] = None; from pyrmq_core.tools.cli import main; main()"
    for words in ("topic stats T", "tail T", "send T body"):
        command = [sys.executable, "-c", code, *words.split(), "-n", closed_port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        if library == "trio" or words.startswith("send"):
            assert f'needs {library}: pip install "pyrmq-spark[cli]"' in done.stderr
