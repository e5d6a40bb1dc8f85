"""`pyrmq web`: serves the web page (extra `[web]`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyrmq_core.errors import MissingLibrary
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.servers import run

if TYPE_CHECKING:
    import trio

    from pyrmq_core.client.client import Client

PORT = 8080


@click.command()
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="The page's port; 0 for a free port."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--allow-host", "allow_hosts", multiple=True, help="A further host name of the page in browsers.")
@click.option(
    "--allow-changes", is_flag=True, help="Let the page send, reset, resend and delete, each after a confirmation."
)
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="NAME",
    help="Hide a value from every viewer: json.card.number, json.card.* or properties.token; again for more.",
)
@click.option(
    "--change-log",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep each change as two JSON lines, of its begin and its end.",
)
@click.option(
    "--viewer-header",
    metavar="NAME",
    help="The header that names who changes something, for the log. Only a proxy that always sets it makes it true.",
)
@connection_options
def web(
    connection: Connection,
    port: int,
    host: str,
    allow_hosts: tuple[str, ...],
    allow_changes: bool,
    masks: tuple[str, ...],
    change_log: Path | None,
    viewer_header: str | None,
) -> None:
    """Serve a page that shows the cluster, until Ctrl-C."""
    if not allow_changes and (change_log or viewer_header):
        raise click.UsageError("--change-log and --viewer-header need --allow-changes")
    import trio

    from pyrmq_core.network.process_end import stop_signals

    async def serve() -> None:
        with trio.open_signal_receiver(*stop_signals()) as signals:
            async with connection.client() as client, trio.open_nursery() as nursery:
                address = await start_page(
                    nursery,
                    client,
                    connection.nameserver_url or connection.nameserver or "",
                    host=host,
                    port=port,
                    allow_hosts=allow_hosts,
                    allow_changes=allow_changes,
                    masks=masks,
                    change_log=change_log,
                    viewer_header=viewer_header,
                    timeout=connection.timeout,
                    namespace=connection.namespace,
                )
                click.echo(f"the page is at {address}; Ctrl-C stops")
                async for _ in signals:
                    break
                nursery.cancel_scope.cancel()
        click.echo("stopped")

    run(serve)


async def start_page(
    nursery: trio.Nursery,
    client: Client,
    nameservers: str,
    **settings: Any,
) -> str:
    """Starts the web page as a task in the nursery, and returns its address. `settings` are those of `WebSettings`."""
    try:
        from pyrmq_core.tools.web.server import WebSettings, serve_web
    except ImportError as error:
        raise MissingLibrary(f'the page needs {error.name}: pip install "pyrmq-spark[web]"') from None
    address: str = await nursery.start(serve_web, client, nameservers, WebSettings(**settings))
    return address
