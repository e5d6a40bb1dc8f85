"""`pyrmq broker` and `pyrmq nameserver`: each runs a server, and is also a group of commands about such servers.

If the first argument is a word, it is the name of a command. Otherwise all arguments are passed to the server's own
program: `pyrmq broker`, `pyrmq broker -c FILE`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from pyrmq_core.tools.cli.servers import CommandGroup

SERVER_ARGUMENTS: Final = "pyrmq.server_arguments"
HELP: Final = ("-h", "--help")

# The main function of a server's program: it takes arguments and returns an exit status.
Program = Callable[[list[str]], int]


class ServerGroup(CommandGroup):
    """A group of commands that runs a server's program, with all arguments, if no command is named."""

    def __init__(self, name: str, program: Program, about: str) -> None:
        super().__init__(name=name, help=about)
        self._program = program

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-"):
            return super().parse_args(ctx, args)
        ctx.meta[SERVER_ARGUMENTS] = list(args)
        ctx.args = []
        return []

    def invoke(self, ctx: click.Context) -> Any:
        arguments = ctx.meta.get(SERVER_ARGUMENTS)
        if arguments is None:
            return super().invoke(ctx)
        if arguments and arguments[0] in HELP:
            self._print_help(ctx, arguments)
        raise SystemExit(self._program(arguments))

    def _print_help(self, ctx: click.Context, arguments: list[str]) -> None:
        try:
            self._program(arguments)
        except SystemExit as ended:  # raised by argparse after it printed its help
            if ended.code:
                raise
        formatter = ctx.make_formatter()
        formatter.write_text(f"With a command, {ctx.command_path} administers servers that run:")
        self.format_commands(ctx, formatter)
        click.echo(f"\n{formatter.getvalue()}", nl=False)
        raise SystemExit(0)
