"""The command `pyrmq` itself: a table of all commands, each of which is imported when it is used.

Importing all of them takes a second. `--help`, `--version` and the completion of command names import none.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from pyrmq_core import __version__


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command that is imported when it is used: its module in this package, its name, and its line in the help."""

    module: str
    name: str
    sentence: str

    def load(self) -> click.Command:
        command: click.Command = getattr(importlib.import_module(f"pyrmq_core.tools.cli.{self.module}"), self.name)
        return command


COMMANDS: Final = {
    "acl": LazyCommand("operation.acl", "acl", "Administer users and policies (5.x), accounts (4.9)."),
    "broker": LazyCommand("operation.broker", "broker", "Run a broker, or administer brokers."),
    "clients": LazyCommand("groups.group", "clients", "List the producers and consumers that are connected."),
    "cluster": LazyCommand("admin", "cluster", "Show every cluster's brokers and their addresses."),
    "consume": LazyCommand("consume", "consume", "Print a group's messages and acknowledge them."),
    "dev": LazyCommand("serving.dev", "dev", "Run a NameServer and brokers, until Ctrl-C."),
    "dlq": LazyCommand("groups.messages", "dlq", "Show a group's dead letters, and send them again."),
    "doctor": LazyCommand("doctor", "doctor", "Report what a Spark job would find here."),
    "export": LazyCommand("export", "export", "Copy messages of a topic to a file."),
    "group": LazyCommand("groups.group", "group", "Administer consumer groups and their offsets."),
    "health": LazyCommand("operation.health", "health", "Check masters, queues, disks and lag."),
    "import": LazyCommand("import_files", "import_file", "Send the messages of a file that export wrote."),
    "kv": LazyCommand("admin", "kv", "Show and change small values that NameServers keep."),
    "nameserver": LazyCommand("operation.nameserver", "nameserver", "Run a NameServer, or administer NameServers."),
    "query": LazyCommand("groups.messages", "query", "Find messages by key or id."),
    "search": LazyCommand("search", "search", "Find messages by their content."),
    "send": LazyCommand("send", "send", "Send one message, or one for each line of an input."),
    "tail": LazyCommand("tail", "tail", "Print the messages of a topic, with -f also new ones."),
    "top": LazyCommand("operation.top", "top", "Show brokers and the groups with the greatest lag, live."),
    "topic": LazyCommand("operation.manifest", "topic", "List, look up, create and delete topics."),
    "web": LazyCommand("serving.web", "web", "Serve a page that shows the cluster, until Ctrl-C."),
}


class OutermostGroup(click.Group):
    """The group of all commands. It turns exceptions of a command, and of printing the help, into an exit status."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        _print_any_text()
        contexts: list[click.Context] = []
        _ended(lambda: contexts.append(super(OutermostGroup, self).make_context(*args, **extra)))
        return contexts[0]

    def invoke(self, ctx: click.Context) -> None:
        _ended(lambda: super(OutermostGroup, self).invoke(ctx))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = COMMANDS[cmd_name].load()
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.sentence) for name, command in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=COMMANDS[name].sentence) for name in COMMANDS if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(cls=OutermostGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def pyrmq() -> None:
    """RocketMQ from a terminal: servers to try things on, sending, reading, administration."""


def _print_any_text() -> None:
    """Makes stdout and stderr print escapes for characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="backslashreplace")


def _ended(work: Callable[[], object]) -> None:
    try:
        try:
            work()
        finally:
            sys.stdout.flush()
    except (click.ClickException, click.exceptions.Exit, SystemExit):
        raise
    except KeyboardInterrupt:  # perhaps during an import, so that nothing more is imported here
        raise SystemExit(130) from None
    except BaseException as raised:
        try:
            from pyrmq_core.network.process_end import failure_status

            status = failure_status(raised, "Error")
        except ModuleNotFoundError as error:
            library = str(error.name).partition(".")[0]
            raise click.ClickException(f'this command needs {library}: pip install "pyrmq-spark[cli]"') from None
        raise SystemExit(status) from None
