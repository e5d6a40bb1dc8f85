"""Parts that all commands share: groups of commands, and the event loop in which a command runs until a signal."""

from __future__ import annotations

import functools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from pyrmq_core.tools.cli.connections import ConnectionOption

if TYPE_CHECKING:
    import trio


class SectionedCommand(click.Command):
    """A command whose help lists the connection options below its own options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
    """A group of `SectionedCommand`s. Groups in it are of this class, too."""

    command_class = SectionedCommand
    group_class = type


def run(call: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Runs the async function until it returns or a signal arrives.

    Ctrl-C raises `KeyboardInterrupt`. SIGTERM ends the command with status 143, and SIGHUP with 129.
    """
    import trio

    trio.run(functools.partial(_interruptible, call, *args))


async def _interruptible(call: Callable[..., Awaitable[None]], *args: Any) -> None:
    import trio

    from pyrmq_core.network.process_end import stop_signals

    # By default trio may raise KeyboardInterrupt between any two instructions, even while a task is being created.
    # Python would then print a warning about a coroutine that was never awaited.
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
