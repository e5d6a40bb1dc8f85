"""The parts that all commands share: the NameServer's option, and an end with one line and an exit status."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
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
    """Runs the async function; the group reports what it raises."""
    trio.run(functools.partial(call, *args))


def _ended(work: Callable[[], object]) -> None:
    if status := exit_status(work, "Error"):
        raise SystemExit(status)
