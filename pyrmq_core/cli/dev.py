"""`pyrmq dev`: a whole cluster in one process, with a hint on how to use it."""

from __future__ import annotations

import signal
from typing import Final

import click
import trio
from rich.table import Table

from pyrmq_core.cli.tables import rendered
from pyrmq_core.embedded import EmbeddedCluster

# SQL filters and reads from slaves are off by default. Here they are on, so that they can be tried before production.
SETTINGS: Final = {"enablePropertyFilter": "true", "slaveReadEnable": "true"}


async def serve_dev(brokers: int, slaves: int, sync: bool, host: str, port: int, directory: str | None) -> None:
    """Serves until Ctrl-C or SIGTERM, then prints whether the stores are kept."""
    made = EmbeddedCluster(
        brokers, slaves=slaves, sync=sync, settings=SETTINGS, host=host, port=port, directory=directory
    )
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with made as cluster:
            table = Table("server", "address")
            table.add_row("nameserver", cluster.nameserver)
            for name, address in {**cluster.brokers, **cluster.slaves}.items():
                table.add_row(name, address)
            removal = "" if directory else " (removed at the end; keep them with --dir)"
            stores = f"stores in {cluster.directory}{removal}"
            hint = f"try: pyrmq -h; pyrmq send demo hello -n {cluster.nameserver}; Ctrl-C stops"
            click.echo(rendered(table, stores, hint), nl=False)
            async for _ in signals:
                break
    click.echo(f"stopped; the stores are kept in {directory}" if directory else "stopped; nothing is kept")
