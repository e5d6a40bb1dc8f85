"""Commands of `pyrmq` as processes: every one that click knows, so that a new one is tested without being listed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import IO

import click
from click.testing import CliRunner

from pyrmq_core.tools.cli.commands import OutermostGroup, pyrmq
from pyrmq_core.tools.cli.operation.server_groups import ServerGroup

PROGRAM = (sys.executable, "-m", "pyrmq_core.tools.cli")
ENDS_WITHIN = 60.0
EXPORTED = str(Path(tempfile.gettempdir()) / f"pyrmq-exported-{os.getpid()}.jsonl")
IMPORTED = str(Path(__file__).with_name("imported.jsonl"))
# The options with which a command ends by itself, and those whose values have a form; the last value of each counts.
ENDING = {
    "acl account white-addresses": ("10.10.10.*",),
    "acl policy create": ("--resource", "Topic:orders", "--action", "Pub"),
    "acl policy update": ("--resource", "Topic:*", "--action", "Pub"),
    "acl user update": ("--status", "disable"),
    "consume": ("--max", "1"),
    "dlq resend": ("--all", "--to", "origin"),
    "group create": ("--retryMaxTimes", "3"),
    "group delete": ("--yes",),
    "topic delete": ("--yes",),
    "broker clean": ("--yes",),
    "acl user delete": ("--yes",),
    "acl account delete": ("--yes",),
    "group reset": ("--to", "earliest"),
    "group seek": ("-b", "broker-a", "-q", "0", "-o", "0"),
    "query": ("--key", "K"),
    "export": ("--since", "1h", "--format", "jsonl", "--to", EXPORTED, "--overwrite"),
    "search": ("--since", "1h", "--contains", "body"),
    "top": ("--once",),
}


def commands() -> dict[str, click.Command]:
    """Returns every command that does something, by its words."""
    return dict(_below(pyrmq, ""))


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """Returns the commands of a group in their order; those that are not loaded yet are loaded."""
    context = click.Context(group)
    names = group.list_commands(context) if isinstance(group, OutermostGroup) else list(group.commands)
    commands = {name: group.get_command(context, name) for name in names}
    return {name: command for name, command in commands.items() if command is not None}


def _below(group: click.Group, words: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in commands_of(group).items():
        if isinstance(command, ServerGroup) or not isinstance(command, click.Group):
            yield words + name, command
        if isinstance(command, click.Group):
            yield from _below(command, f"{words}{name} ")


def asks_servers(command: click.Command) -> bool:
    """Checks for a command that ends when servers have answered, or are gone: a page is served without them."""
    return any(parameter.name == "nameserver" for parameter in command.params) and not listens(command)


def listens(command: click.Command) -> bool:
    """Checks for a server: it takes a port, or the server's own program reads its arguments."""
    return isinstance(command, ServerGroup) or any(parameter.name == "port" for parameter in command.params)


def filled(words: str, value: str) -> list[str]:
    """Returns the command's words with `value` for its arguments and required options, so that it ends."""
    ending = set(ENDING.get(words, ()))
    positional = [
        _argument(parameter, value)
        for parameter in commands()[words].params
        if isinstance(parameter, click.Argument) and parameter.nargs == 1 and (parameter.metavar or "")[:1] != "["
    ]
    required = [
        text
        for parameter in commands()[words].params
        if isinstance(parameter, click.Option) and parameter.required and not ending.intersection(parameter.opts)
        for text in (parameter.opts[0], value)
    ]
    return [*words.split(), *positional, *required, *ENDING.get(words, ())]


def _argument(parameter: click.Argument, value: str) -> str:
    """Returns the value of an argument: a broker's name, a file or one of a choice, where nothing else is taken."""
    if parameter.metavar == "BROKER":
        return "broker-a"
    if parameter.metavar == "FILE":
        return IMPORTED
    return str(parameter.type.choices[0]) if isinstance(parameter.type, click.Choice) else value


def started(
    *arguments: str,
    home: Path,
    stdout: int | IO[str] = subprocess.PIPE,
    stdin: int = subprocess.DEVNULL,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Starts the process; `ended` reads its standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    environment |= {"HOME": str(home), "COLUMNS": "200"}
    return subprocess.Popen(
        [*PROGRAM, *arguments], stdin=stdin, stdout=stdout, stderr=stderr, text=True, env=environment, cwd=home
    )


def ran(*arguments: str, home: Path, stdin: bytes = b"") -> tuple[int, str, list[str]]:
    """Runs the command in this process, which saves its start of a second; returns what `ended` does."""
    environment = {"NAMESRV_ADDR": None, "HOME": str(home), "COLUMNS": "200"}
    with chdir(home), tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        result = CliRunner().invoke(pyrmq, arguments, input=given, env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr.splitlines()


def with_closed_pipe(*arguments: str, home: Path) -> subprocess.Popen[str]:
    """Starts the process with a standard output whose reading end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return started(*arguments, home=home, stdout=writing)
    finally:
        os.close(writing)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    """Waits for the process; returns its exit status, its standard output and the lines of its standard error."""
    try:
        output, errors = process.communicate(timeout=ENDS_WITHIN)
    finally:
        process.kill()
        process.wait(60)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    assert "Traceback" not in errors, errors
    return process.returncode, output or "", errors.splitlines()
