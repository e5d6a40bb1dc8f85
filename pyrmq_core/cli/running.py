"""What every command that asks servers has: the NameServer's option, and failures that are one line."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import click
import trio

from pyrmq_core import RocketMQError

GROUP = "pyrmq-cli"

nameserver_option = click.option(
    "-n", "--namesrv-addr", "nameserver", envvar="NAMESRV_ADDR", help="NameServers, host:port;host:port  [NAMESRV_ADDR]"
)


def run(call: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run to the end; a failure is one line and exit status 1, Ctrl-C is quiet."""
    try:
        trio.run(functools.partial(call, *args))
    except RocketMQError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
