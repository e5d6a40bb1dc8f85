"""Runs a cluster in this process for `pyrmq dev`, and prints how to use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import click
import trio
from rich.table import Table

from pyrmq_core import Client
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.network.process_end import stop_signals
from pyrmq_core.tools.cli.drawn_tables import drawn
from pyrmq_core.tools.cli.serving.web import start_page
from pyrmq_core.tools.search.json_output import json_text

# SQL filters and reads from slaves are off by default. Here they are on, so that they can be tried before production.
SETTINGS: Final = {"enablePropertyFilter": "true", "slaveReadEnable": "true"}


async def serve_dev(
    brokers: int,
    slaves: int,
    sync: bool,
    host: str,
    ports: tuple[int, int],
    directory: str | None,
    web_port: int | None,
    topics: Mapping[str, int],
    as_json: bool,
) -> None:
    """Runs servers until a signal, then prints whether the stores are kept.

    `ports` are the ports of the NameServer and of the first broker. If `web_port` is None, there is no web page. With
    `as_json` it prints only one JSON object.
    """
    own_cluster = EmbeddedCluster(
        brokers,
        slaves=slaves,
        sync=sync,
        settings=SETTINGS,
        topics=topics,
        host=host,
        port=ports[0],
        broker_port=ports[1],
        directory=directory,
    )
    with trio.open_signal_receiver(*stop_signals()) as signals:
        async with own_cluster as cluster, _page(cluster, web_port) as page:
            click.echo(_addresses(cluster, page) if as_json else _table(cluster, page, directory), nl=False)
            async for _ in signals:
                break
    if not as_json:
        click.echo(f"stopped; the stores are kept in {directory}" if directory else "stopped; nothing is kept")


def _addresses(cluster: EmbeddedCluster, page: str) -> str:
    members = {
        "nameserver": cluster.nameserver,
        "brokers": cluster.brokers,
        "slaves": cluster.slaves,
        "directory": str(cluster.directory),
        "page": page or None,
    }
    return json_text(members) + "\n"


def _table(cluster: EmbeddedCluster, page: str, directory: str | None) -> str:
    table = Table("server", "address")
    table.add_row("nameserver", cluster.nameserver)
    for name, address in {**cluster.brokers, **cluster.slaves}.items():
        table.add_row(name, address)
    if page:
        table.add_row("page", page)
    removal = "" if directory else " (removed at the end; keep them with --dir)"
    stores = f"stores in {cluster.directory}{removal}"
    hint = f"try: pyrmq -h; pyrmq send demo hello -n {cluster.nameserver}; Ctrl-C stops"
    return drawn(table, stores, hint)


@asynccontextmanager
async def _page(cluster: EmbeddedCluster, port: int | None) -> AsyncIterator[str]:
    if port is None:
        yield ""
        return
    async with Client(nameserver=cluster.nameserver) as client, trio.open_nursery() as nursery:
        yield await start_page(nursery, client, cluster.nameserver, port=port, allow_changes=True)
        nursery.cancel_scope.cancel()
