"""The parts that all commands share: groups of commands, and an end with one line and an exit status."""

from __future__ import annotations

import functools
import io
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import click
import trio

from pyrmq_core.cli.connections import ConnectionOption
from pyrmq_core.network.process_end import exit_status, stop_signals


class SectionedCommand(click.Command):
    """A command whose help lists the connection's options below its own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes two lists of options; the second is left out if it is empty."""
        for title, wanted in (("Options", False), ("Connection", True)):
            records = [
                record
                for parameter in self.get_params(ctx)
                if isinstance(parameter, ConnectionOption) is wanted
                and (record := parameter.get_help_record(ctx)) is not None
            ]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class CommandGroup(click.Group):
    """A group of such commands; a group inside is one as well."""

    command_class = SectionedCommand
    group_class = type


class OneLineGroup(CommandGroup):
    """The outermost group, which turns a failure of any command, or of click's own output, into an exit status."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Reads the group's own options; `--help` and `--version` print here."""
        _print_any_text()
        made: list[click.Context] = []
        _ended(lambda: made.append(super(OneLineGroup, self).make_context(*args, **extra)))
        return made[0]

    def invoke(self, ctx: click.Context) -> None:
        """Runs the command, and exits if it fails."""
        _ended(lambda: super(OneLineGroup, self).invoke(ctx))


def _print_any_text() -> None:
    """Makes a character that the output's encoding lacks its escape, where the error would end a command half way."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="backslashreplace")


def run(call: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Runs the async function; the group reports what it raises.

    A signal that stops programs cancels it, then `KeyboardInterrupt` is raised, or `SystemExit` with status 143 or 129.
    """
    trio.run(functools.partial(_interruptible, call, *args))


async def _interruptible(call: Callable[..., Awaitable[None]], *args: Any) -> None:
    # By default trio raises the interrupt between any two instructions, also where a task is just being made: its
    # coroutine would be lost, and Python would say so on standard error.
    received: list[int] = []
    with trio.open_signal_receiver(*stop_signals()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_first, signals, received, nursery.cancel_scope)
            await call(*args)
            nursery.cancel_scope.cancel()
    for number in received:
        if number != signal.SIGINT:
            raise SystemExit(128 + number)
    if received:
        raise KeyboardInterrupt


async def _cancel_at_first(signals: AsyncIterator[int], received: list[int], scope: trio.CancelScope) -> None:
    async for number in signals:
        received.append(number)
        scope.cancel()


def _ended(work: Callable[[], object]) -> None:
    if status := exit_status(work, "Error"):
        raise SystemExit(status)
