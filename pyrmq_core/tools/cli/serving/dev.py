"""`pyrmq dev`: runs NameServers and brokers for trying things out."""

from __future__ import annotations

import ipaddress

import click

from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.serving.web import PORT as WEB_PORT


@click.command(cls=SectionedCommand)
@click.option("--brokers", default=2, show_default=True, type=click.IntRange(1, 26), help="The number of brokers.")
@click.option(
    "--slaves", default=0, show_default=True, type=click.IntRange(0, 9), help="The number of slaves of each broker."
)
@click.option("--sync", is_flag=True, help="Answer a send when a slave has the message.")
@click.option("--port", default=9876, show_default=True, type=click.IntRange(0, 65535), help="The NameServer's port.")
@click.option(
    "--broker-port",
    default=0,
    type=click.IntRange(0, 65535),
    help="The first broker's port; each further one has a port ten higher.  [default: free ports]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address that all servers listen on.")
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Keep the stores here, and open them again.")
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME[:QUEUES]", help="Create this topic; may be given several times."
)
@click.option("--web", is_flag=True, help="Serve a page in the browser as well.")
@click.option("--web-port", default=WEB_PORT, show_default=True, type=click.IntRange(0, 65535), help="The page's port.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with all addresses, when they serve.")
def dev(
    brokers: int,
    slaves: int,
    sync: bool,
    port: int,
    broker_port: int,
    host: str,
    directory: str | None,
    topics: tuple[str, ...],
    web: bool,
    web_port: int,
    as_json: bool,
) -> None:
    """Run a NameServer and brokers in this process, until Ctrl-C."""
    from pyrmq_core.tools.cli.serving.dev_cluster import serve_dev

    if sync and not slaves:
        raise click.UsageError("--sync needs --slaves 1 or more: a send waits for one of them")
    queues = dict(_name_and_queues(text) for text in topics)
    page = web_port if web else None
    run(serve_dev, brokers, slaves, sync, _numeric_address(host), (port, broker_port), directory, page, queues, as_json)


def _name_and_queues(text: str) -> tuple[str, int]:
    name, colon, number = text.partition(":")
    if not name or (colon and not (number.isdecimal() and len(number) <= 10)):
        raise click.BadParameter(f"{text[:80]!r} is not NAME or NAME:QUEUES, such as orders:8", param_hint="--topic")
    return name, int(number or 8)


def _numeric_address(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None or address.is_unspecified:
        raise click.BadParameter(
            f"{host!r}: give an IP address of this machine by which clients reach it", param_hint="--host"
        )
    return str(address)
