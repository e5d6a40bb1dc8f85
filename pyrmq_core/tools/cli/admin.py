"""`pyrmq topic`, `pyrmq cluster`, `pyrmq kv`: show and change topics, brokers and KV configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click

from pyrmq_core import NoRoute, RocketMQError
from pyrmq_core.model import Permission
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.confirmation import confirm, yes_option
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.name_completion import broker_names, cluster_names, cluster_option, topic_names, users_topics
from pyrmq_core.tools.cli.servers import CommandGroup, SectionedCommand, run
from pyrmq_core.tools.cli.settings import settings_of, show_table
from pyrmq_core.tools.cli.tables import json_option, report, show

if TYPE_CHECKING:
    from pyrmq_core.client.admin.admin import Admin
    from pyrmq_core.protocol.routes.route import TopicRouteData

ROUTE_COLUMNS: Final = ("brokerName", "master", "readQueueNums", "writeQueueNums", "perm")
PERMISSIONS: Final = {
    "r": Permission.READ,
    "w": Permission.WRITE,
    "rw": Permission.READ | Permission.WRITE,
    "4": Permission.READ,
    "2": Permission.WRITE,
    "6": Permission.READ | Permission.WRITE,
}


def with_admin(connection: Connection, work: Callable[[Admin], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with connection.admin() as admin:
            await work(admin)

    run(opened)


@click.group(cls=CommandGroup)
def topic() -> None:
    """List, look up, create and delete topics."""


@topic.command("list")
@connection_options
@click.option("--cluster", help="Only topics of this cluster.", shell_complete=cluster_names)
@click.option(
    "-a", "--all", "all_topics", is_flag=True, help="Also RocketMQ's own, retry and dead-letter topics, and manifests."
)
@json_option
def list_topics(connection: Connection, cluster: str | None, all_topics: bool, as_json: bool) -> None:
    """List the users' topics, or with -a all topics that the NameServer knows."""

    async def work(admin: Admin) -> None:
        topics = await admin.topics.list(cluster=cluster) if all_topics else await users_topics(admin, cluster)
        show(({"topic": name} for name in topics), ["topic"], as_json=as_json)

    with_admin(connection, work)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@connection_options
@json_option
def route(name: str, connection: Connection, as_json: bool) -> None:
    """Show the brokers that have the topic, and their numbers of queues."""

    async def work(admin: Admin) -> None:
        show(_route_rows(await admin.route(name)), ROUTE_COLUMNS, as_json=as_json)

    with_admin(connection, work)


def _route_rows(route_data: TopicRouteData) -> list[dict[str, object]]:
    addresses = {broker.broker_name: broker for broker in route_data.broker_datas}
    return [
        {
            "brokerName": queues.broker_name,
            "master": addresses[queues.broker_name].master if queues.broker_name in addresses else None,
            "readQueueNums": queues.read_queue_nums,
            "writeQueueNums": queues.write_queue_nums,
            "perm": int(queues.perm),
        }
        for queues in sorted(route_data.queue_datas, key=lambda queues: queues.broker_name)
    ]


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@connection_options
@json_option
def settings(name: str, connection: Connection, as_json: bool) -> None:
    """Show the topic's settings, with a column for each broker."""

    async def work(admin: Admin) -> None:
        from pyrmq_core.client.admin.settings_tables import topic_table

        configs = await admin.topics.configs(name)
        table = topic_table(configs.answers, configs.failures)
        show_table(table, table.rows, as_json=as_json)

    with_admin(connection, work)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@connection_options
@click.option(
    "-r",
    "--readQueueNums",
    "read_queues",
    default=8,
    show_default=True,
    type=click.IntRange(1),
    help="The number of queues to read.",
)
@click.option(
    "-w",
    "--writeQueueNums",
    "write_queues",
    default=8,
    show_default=True,
    type=click.IntRange(1),
    help="The number of queues to write.",
)
@cluster_option
@click.option("-b", "--broker", help="Only the broker of this name.", shell_complete=broker_names)
@click.option(
    "--perm", default="rw", show_default=True, type=click.Choice(tuple(PERMISSIONS)), help="To read, to write, or both."
)
@click.option("-o", "--order", is_flag=True, help="Create an order topic.")
@click.option("--batch", is_flag=True, help="Create a batch topic (5.x): a batch is one record.")
@click.option(
    "--type",
    "message_type",
    type=click.Choice(("normal", "fifo", "delay", "transaction", "priority", "lite")),
    help="The type of messages that a proxy accepts (5.x).",
)
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="Another attribute of 5.x.")
@json_option
def create(
    name: str,
    connection: Connection,
    read_queues: int,
    write_queues: int,
    cluster: str | None,
    broker: str | None,
    perm: str,
    order: bool,
    batch: bool,
    message_type: str | None,
    attributes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a topic, or change how many queues it has. --json prints its route."""

    wanted = settings_of(attributes, "--attribute")
    if message_type is not None:
        wanted["message.type"] = message_type.upper()

    async def work(admin: Admin) -> None:
        await admin.create_topic(
            name,
            queues=write_queues,
            read_queues=read_queues,
            cluster=cluster,
            broker=broker,
            perm=PERMISSIONS[perm],
            order=order,
            batch=batch,
            attributes=wanted,
        )
        rows = _route_rows(await admin.route(name)) if as_json else []
        report(
            f"topic {name} is there: {read_queues} queues to read, {write_queues} to write a broker",
            rows,
            as_json=as_json,
        )

    with_admin(connection, work)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@connection_options
@cluster_option
@yes_option
@json_option
def delete(name: str, connection: Connection, cluster: str | None, yes: bool, as_json: bool) -> None:
    """Delete a topic with its messages."""
    connected: list[str] = []

    async def look_up(admin: Admin) -> None:
        await _brokers_of(admin, name, cluster)
        connected.extend(await _connected_groups(admin, name))

    async def work(admin: Admin) -> None:
        brokers = await _brokers_of(admin, name, cluster)
        await admin.delete_topic(name, cluster=cluster)
        report(
            f"topic {name} is deleted",
            [{"topic": name, "brokerName": broker_name} for broker_name in brokers],
            as_json=as_json,
        )

    if not yes:
        with_admin(connection, look_up)
        groups = f" Members of {', '.join(connected)} are connected and read it." if connected else ""
        confirm(visible_text(f"Delete topic {name} with all its messages?{groups}"))
    with_admin(connection, work)


async def _brokers_of(admin: Admin, name: str, cluster: str | None) -> list[str]:
    """Returns the names of the brokers that have the topic.

    The list is empty if only the topic's order configuration at the NameServers is left. Raises `ClickException` if
    that is missing, too, or if no broker of the cluster has the topic.
    """
    try:
        route_data = await admin.route(name)
    except NoRoute:
        if await admin.topics.order(name) is not None:
            return []
        raise click.ClickException(f"no broker has the topic {name}; nothing is deleted") from None
    clusters = {broker.cluster for broker in route_data.broker_datas}
    if cluster is not None and cluster not in clusters:
        there = ", ".join(sorted(clusters))
        raise click.ClickException(f"no broker of {cluster} has the topic {name} ({there}); nothing is deleted")
    return sorted(
        broker.broker_name for broker in route_data.broker_datas if cluster is None or broker.cluster == cluster
    )


async def _connected_groups(admin: Admin, name: str) -> list[str]:
    from pyrmq_core.client.query_many import query_many

    async def is_connected(group: str) -> bool:
        try:
            description = await admin.groups.describe(group, running_info=False)
        except RocketMQError:  # the group was never created and has only offsets, or no broker answers
            return False
        return any(subscription.topic == name for subscription in description.subscriptions)

    connected_of = await query_many((await admin.topics.group_names(name)).groups, is_connected)
    return [group for group, connected in connected_of.items() if connected]


@click.command(cls=SectionedCommand)
@connection_options
@json_option
def cluster(connection: Connection, as_json: bool) -> None:
    """Show every cluster's brokers and their addresses."""

    async def work(admin: Admin) -> None:
        info = await admin.cluster_info()
        rows = [
            {"cluster": named, "brokerName": name, "brokerId": broker_id, "address": address}
            for named, names in sorted(info.cluster_addr_table.items())
            for name in sorted(names)
            if name in info.broker_addr_table
            for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
        ]
        show(rows, ["cluster", "brokerName", "brokerId", "address"], as_json=as_json)

    with_admin(connection, work)


@click.group(cls=CommandGroup)
def kv() -> None:
    """Show and change small values that NameServers keep by namespace and key, such as ORDER_TOPIC_CONFIG."""


@kv.command("get")
@click.argument("namespace")
@click.argument("key")
@connection_options
@json_option
def get_value(namespace: str, key: str, connection: Connection, as_json: bool) -> None:
    """Print a value."""

    async def work(admin: Admin) -> None:
        value = await admin.kv_value(namespace, key)
        if value is None:
            raise click.ClickException(f"namespace {namespace} has no key {key}")
        report(value, [{"key": key, "value": value}], as_json=as_json)

    with_admin(connection, work)


@kv.command("put")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@connection_options
@json_option
def put_value(namespace: str, key: str, value: str, connection: Connection, as_json: bool) -> None:
    """Store a value at every NameServer."""

    async def work(admin: Admin) -> None:
        await admin.put_kv(namespace, key, value)
        report("", [{"namespace": namespace, "key": key, "value": value}], as_json=as_json)

    with_admin(connection, work)


@kv.command("delete")
@click.argument("namespace")
@click.argument("key")
@connection_options
@json_option
def delete_value(namespace: str, key: str, connection: Connection, as_json: bool) -> None:
    """Delete a key at every NameServer."""

    async def work(admin: Admin) -> None:
        await admin.delete_kv(namespace, key)
        report("", [{"namespace": namespace, "key": key}], as_json=as_json)

    with_admin(connection, work)


@kv.command("list")
@click.argument("namespace")
@connection_options
@json_option
def list_values(namespace: str, connection: Connection, as_json: bool) -> None:
    """List all keys and values of a namespace."""

    async def work(admin: Admin) -> None:
        values = await admin.kv_values(namespace)
        show(({"key": key, "value": values[key]} for key in sorted(values)), ["key", "value"], as_json=as_json)

    with_admin(connection, work)
