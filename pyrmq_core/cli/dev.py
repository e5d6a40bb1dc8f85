"""`pyrmq dev`: a whole cluster in one process, with what to type to use it."""

from __future__ import annotations

import signal

import trio
from rich.console import Console
from rich.table import Table

from pyrmq_core.embedded import EmbeddedCluster


async def serve_dev(brokers: int, port: int, directory: str | None) -> None:
    """Serves until Ctrl-C or SIGTERM, then says what is kept."""
    console = Console()
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with EmbeddedCluster(brokers, port=port, directory=directory) as cluster:
            table = Table("server", "address")
            table.add_row("nameserver", cluster.nameserver)
            for name, address in cluster.brokers.items():
                table.add_row(name, address)
            console.print(table)
            console.print(
                f"stores in {cluster.directory}" + ("" if directory else " (removed at the end; keep them with --dir)")
            )
            console.print(f"try: pyrmq -h; pyrmq send demo hello -n {cluster.nameserver}; Ctrl-C stops")
            async for _ in signals:
                break
    console.print(f"stopped; the stores are kept in {directory}" if directory else "stopped; nothing is kept")
