"""`pyrmq dev`: a whole cluster in one process, with a hint on how to use it."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import click
import trio
from rich.table import Table

from pyrmq_core import Client
from pyrmq_core.cli.tables import rendered
from pyrmq_core.cli.web import start_page
from pyrmq_core.embedded import EmbeddedCluster

# SQL filters and reads from slaves are off by default. Here they are on, so that they can be tried before production.
SETTINGS: Final = {"enablePropertyFilter": "true", "slaveReadEnable": "true"}


async def serve_dev(
    brokers: int, slaves: int, sync: bool, host: str, port: int, directory: str | None, web_port: int | None
) -> None:
    """Serves until Ctrl-C or SIGTERM, then prints whether the stores are kept; without `web_port` there is no page."""
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
            async with _page(cluster, web_port) as page:
                if page:
                    table.add_row("page", page)
                click.echo(rendered(table, stores, hint), nl=False)
                async for _ in signals:
                    break
    click.echo(f"stopped; the stores are kept in {directory}" if directory else "stopped; nothing is kept")


@asynccontextmanager
async def _page(cluster: EmbeddedCluster, port: int | None) -> AsyncIterator[str]:
    """Serves the cluster's page on this machine, with changes; yields its address, or an empty text without a port."""
    if port is None:
        yield ""
        return
    async with Client(nameserver=cluster.nameserver) as client, trio.open_nursery() as nursery:
        yield await start_page(nursery, client, cluster.nameserver, port=port, allow_changes=True)
        nursery.cancel_scope.cancel()
