"""The parts that all commands share: the NameServer's option, and an end with one line and an exit status."""

from __future__ import annotations

import functools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import click
import trio

from pyrmq_core.network.process_end import exit_status

GROUP = "pyrmq-cli"

nameserver_option = click.option(
    "-n", "--namesrv-addr", "nameserver", envvar="NAMESRV_ADDR", help="NameServers, host:port;host:port  [NAMESRV_ADDR]"
)


class OneLineGroup(click.Group):
    """The outermost group, which turns a failure of any command, or of click's own output, into an exit status."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Reads the group's own options; `--help` and `--version` print here."""
        made: list[click.Context] = []
        _ended(lambda: made.append(super(OneLineGroup, self).make_context(*args, **extra)))
        return made[0]

    def invoke(self, ctx: click.Context) -> None:
        """Runs the command, and exits if it fails."""
        _ended(lambda: super(OneLineGroup, self).invoke(ctx))


def run(call: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Runs the async function; the group reports what it raises.

    Ctrl-C and SIGTERM cancel it, then `KeyboardInterrupt` is raised, or `SystemExit` with status 143.
    """
    trio.run(functools.partial(_interruptible, call, *args))


async def _interruptible(call: Callable[..., Awaitable[None]], *args: Any) -> None:
    # By default trio raises the interrupt between any two instructions, also where a task is just being made: its
    # coroutine would be lost, and Python would say so on standard error.
    received: list[int] = []
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_first, signals, received, nursery.cancel_scope)
            await call(*args)
            nursery.cancel_scope.cancel()
    if signal.SIGTERM in received:
        raise SystemExit(128 + signal.SIGTERM)
    if received:
        raise KeyboardInterrupt


async def _cancel_at_first(signals: AsyncIterator[int], received: list[int], scope: trio.CancelScope) -> None:
    async for number in signals:
        received.append(number)
        scope.cancel()


def _ended(work: Callable[[], object]) -> None:
    if status := exit_status(work, "Error"):
        raise SystemExit(status)
