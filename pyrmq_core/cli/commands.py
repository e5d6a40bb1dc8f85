"""The commands for servers to try things on, for sending and for reading; those of `admin` and `doctor` are added.

A server is imported by the command that starts it: it takes longer to load than all that the other commands need.
"""

from __future__ import annotations

import ipaddress

import click

from pyrmq_core import PullConsumer
from pyrmq_core.cli.admin import cluster, kv, topic
from pyrmq_core.cli.connections import Connection, connection_options
from pyrmq_core.cli.consume import consume_topic
from pyrmq_core.cli.doctor import doctor
from pyrmq_core.cli.groups.group import clients, group
from pyrmq_core.cli.groups.messages import dlq, query
from pyrmq_core.cli.operation.broker import broker
from pyrmq_core.cli.operation.nameserver import nameserver
from pyrmq_core.cli.operation.topics import TOPIC_COMMANDS
from pyrmq_core.cli.send import send
from pyrmq_core.cli.servers import GROUP, OneLineGroup, run
from pyrmq_core.cli.tail import tail_topic
from pyrmq_core.cli.times import instant
from pyrmq_core.cli.web import PORT as WEB_PORT
from pyrmq_core.cli.web import web as web_page


@click.group(cls=OneLineGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pyrmq-spark")
def pyrmq() -> None:
    """RocketMQ from a terminal: servers to try things on, sending, reading, administration."""


for administering in (topic, cluster, group, query, dlq, clients, kv, doctor, nameserver, broker, web_page, send):
    pyrmq.add_command(administering)
for about_topics in TOPIC_COMMANDS:
    topic.add_command(about_topics)


@pyrmq.command()
@click.option("--brokers", default=2, show_default=True, type=click.IntRange(1, 26), help="How many brokers.")
@click.option("--slaves", default=0, show_default=True, type=click.IntRange(0, 9), help="How many slaves each has.")
@click.option("--sync", is_flag=True, help="Answer a send when a slave has the message.")
@click.option("--port", default=9876, show_default=True, type=click.IntRange(0, 65535), help="The NameServer's port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address that all servers listen on.")
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Keep the stores here, and open them again.")
@click.option("--web", is_flag=True, help="Serve a page in the browser as well.")
@click.option("--web-port", default=WEB_PORT, show_default=True, type=click.IntRange(0, 65535), help="The page's port.")
def dev(
    brokers: int, slaves: int, sync: bool, port: int, host: str, directory: str | None, web: bool, web_port: int
) -> None:
    """Run a NameServer and brokers in this process, until Ctrl-C."""
    from pyrmq_core.cli.dev import serve_dev

    if sync and not slaves:
        raise click.UsageError("--sync needs --slaves 1 or more: a send waits for one of them")
    run(serve_dev, brokers, slaves, sync, _numeric_address(host), port, directory, web_port if web else None)


@pyrmq.command()
@click.argument("topic")
@connection_options
@click.option("--from", "start", help="earliest, latest, or an ISO-8601 time.  [default: earliest; with -f latest]")
@click.option("--tags", default="*", show_default=True, help='As "TagA || TagB".')
@click.option("--max", "limit", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a message.")
def tail(
    topic: str, connection: Connection, start: str | None, tags: str, limit: int | None, follow: bool, as_json: bool
) -> None:
    """Print the messages of a topic, with -f also new ones."""
    start = start or ("latest" if follow else "earliest")
    position = start if start in ("earliest", "latest") else instant(start, "--from", or_else="earliest, latest or ")

    async def print_all() -> None:
        async with (
            connection.client() as client,
            PullConsumer(GROUP, client=client, namespace=connection.namespace, timeout=connection.timeout) as consumer,
        ):
            await tail_topic(consumer, topic, position, tags=tags, limit=limit, follow=follow, as_json=as_json)

    run(print_all)


@pyrmq.command()
@click.argument("topic")
@connection_options
@click.option("-g", "--group", required=True, help="The consumer group, whose members share the messages.")
@click.option("--from", "start", default="latest", show_default=True, help="As for tail, where no offset is stored.")
@click.option("--tags", help='As "TagA || TagB".')
@click.option("--sql", help="An SQL92 expression over properties, instead of --tags.")
@click.option("--orderly", is_flag=True, help="Lock each queue, and take its messages in their order.")
@click.option("--max", "limit", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a message.")
def consume(
    topic: str,
    connection: Connection,
    group: str,
    start: str,
    tags: str | None,
    sql: str | None,
    orderly: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Print a group's messages and acknowledge them, until Ctrl-C."""
    if tags and sql:
        raise click.UsageError("--tags and --sql exclude each other; SQL can say TAGS = '...' itself")
    position = start if start in ("earliest", "latest") else instant(start, "--from", or_else="earliest, latest or ")

    async def consume_all() -> None:
        await consume_topic(
            topic,
            group,
            connection,
            start=position,
            tags=tags or "*",
            sql=sql,
            orderly=orderly,
            limit=limit,
            as_json=as_json,
        )

    run(consume_all)


def _numeric_address(host: str) -> str:
    """Checks that clients can use the address that brokers register: an IP address, not that of all interfaces."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None or address.is_unspecified:
        raise click.BadParameter(
            f"{host!r}: give an IP address of this machine by which clients reach it", param_hint="--host"
        )
    return str(address)
