"""`pyrmq topic stats`, `perm`, `order`, `groups`, `clusters`, `schema`: a topic's figures, permissions and columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from pyrmq_core.model import Permission
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.admin import PERMISSIONS, topic, with_admin
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.groups.rows import failed_text
from pyrmq_core.tools.cli.name_completion import broker_names, cluster_option, topic_names
from pyrmq_core.tools.cli.search import tools_consumer
from pyrmq_core.tools.cli.servers import run
from pyrmq_core.tools.cli.tables import Watch, json_option, show, show_watched, text_of, watch_options
from pyrmq_core.tools.cli.times import age, iso_time, shown_time

if TYPE_CHECKING:
    from pyrmq_core import Admin, BodySchema
    from pyrmq_core.client.admin.values import TopicConsumer, TopicStats

__all__ = ["topic"]

CONSUMER_COLUMNS: Final = ("group", "members", "lag", "delivered/s", "waits")
STATS_COLUMNS: Final = ("brokerName", "queueId", "minOffset", "maxOffset", "messages", "lastUpdated")
SCHEMA_COLUMNS: Final = ("column", "type", "bodies")


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@connection_options
@watch_options
@json_option
def stats(name: str, connection: Connection, watch: Watch, as_json: bool) -> None:
    """Show the offsets of each queue, how many messages lie between them, and when the last was stored."""

    async def work(admin: Admin) -> None:
        async def make() -> str:
            topic_stats = await admin.topics.stats(name)
            # A broker that gives no answer has one row, with its error.
            columns = (*STATS_COLUMNS, "error") if topic_stats.failures else STATS_COLUMNS
            return text_of(_stats_rows(topic_stats, iso_time if as_json else shown_time), columns, as_json=as_json)

        await show_watched(make, watch)

    with_admin(connection, work)


def _stats_rows(stats: TopicStats, written: Callable[[datetime | None], str | None]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": figures.min_offset,
            "maxOffset": figures.max_offset,
            "messages": figures.messages,
            "lastUpdated": written(figures.last_updated),
            "error": None,
        }
        for queue, figures in stats.queues.items()
    ]
    empty = dict.fromkeys((*STATS_COLUMNS, "error"))
    return rows + [
        {**empty, "brokerName": broker, "error": str(error)} for broker, error in sorted(stats.failures.items())
    ]


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@click.argument("perm", metavar="[r|w|rw]", required=False, type=click.Choice(tuple(PERMISSIONS)))
@connection_options
@click.option(
    "-b",
    "--broker",
    help="Only at the broker of this name; else at all that have the topic.",
    shell_complete=broker_names,
)
@cluster_option
@json_option
def perm(
    name: str, perm: str | None, connection: Connection, broker: str | None, cluster: str | None, as_json: bool
) -> None:
    """Show or change the topic's permission: to read (r), write (w) or both (rw)."""
    if perm is None and (broker or cluster):
        raise click.UsageError("--broker and --cluster belong to a change: give r, w or rw")

    async def work(admin: Admin) -> None:
        if perm is None:
            queues = (await admin.route(name)).queue_datas
            rows = [
                {"brokerName": queue.broker_name, "perm": int(queue.perm), "may": _may(queue.perm)} for queue in queues
            ]
            show(sorted(rows, key=lambda row: str(row["brokerName"])), ["brokerName", "perm", "may"], as_json=as_json)
            return
        changes = await admin.topics.update_perm(name, PERMISSIONS[perm], broker=broker, cluster=cluster)
        changed = [
            {"brokerName": broker_name, "before": before, "after": after}
            for broker_name, (before, after) in sorted(changes.items())
        ]
        show(changed, ["brokerName", "before", "after"], as_json=as_json)

    with_admin(connection, work)


def _may(perm: int) -> str:
    words = [word for bit, word in ((Permission.READ, "read"), (Permission.WRITE, "write")) if perm & bit]
    return ", ".join(words) or "nothing"


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@click.argument("queues", metavar="[BROKER:QUEUES]...", nargs=-1)
@connection_options
@click.option("--delete", is_flag=True, help="Delete it at every NameServer.")
@click.option("--restore", is_flag=True, help="Set it at NameServers that lack it, as another one has it.")
@json_option
def order(
    name: str, queues: tuple[str, ...], connection: Connection, delete: bool, restore: bool, as_json: bool
) -> None:
    """Show, set or delete an order topic's configuration: the number of queues at each broker, which clients use."""
    if delete + restore + bool(queues) > 1:
        raise click.UsageError("--delete, --restore and queues exclude each other")
    wanted = dict(_broker_and_queues(text) for text in queues)

    async def work(admin: Admin) -> None:
        if delete:
            await admin.topics.delete_order(name)
        elif wanted:
            await admin.topics.set_order(name, wanted)
        elif restore:
            await admin.topics.keep_order(name)
        numbers = await admin.topics.order(name) or {}
        rows = [{"brokerName": broker, "queues": number} for broker, number in numbers.items()]
        show(rows, ["brokerName", "queues"], as_json=as_json)

    with_admin(connection, work)


def _broker_and_queues(text: str) -> tuple[str, int]:
    broker, _, number = text.rpartition(":")
    if not broker or not number.isdecimal() or len(number) > 10 or not int(number):
        raise click.BadParameter(f"{text[:80]!r} is not BROKER:QUEUES, such as broker-a:8")
    return broker, int(number)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@connection_options
@click.option("--lag", is_flag=True, help="Also members, lag and how long messages wait; most lag first.")
@json_option
def groups(name: str, connection: Connection, lag: bool, as_json: bool) -> None:
    """List the groups that subscribe to the topic or have offsets of it."""

    async def work(admin: Admin) -> None:
        if lag:
            listed = await admin.topics.consumers(name)
            rows = [_consumer_row(consumer, as_json=as_json) for consumer in listed.consumers]
            show(rows, CONSUMER_COLUMNS, as_json=as_json)
            if listed.left_out and not as_json:
                click.echo(f"{listed.left_out} groups more are not looked up")
            click.echo(failed_text(listed.failures, as_json=as_json), nl=False)
            return
        group_names = await admin.topics.group_names(name)
        show([{"group": group} for group in group_names.groups], ["group"], as_json=as_json)
        click.echo(failed_text(group_names.failures, as_json=as_json), nl=False)

    with_admin(connection, work)


def _consumer_row(consumer: TopicConsumer, *, as_json: bool) -> dict[str, object]:
    row: dict[str, object] = {"group": consumer.group, "members": consumer.members, "lag": consumer.lag}
    if as_json:
        return {**row, "deliveredTps": consumer.consume_tps, "waitingSince": iso_time(consumer.waiting_since)}
    waits = age(consumer.waiting_since, consumer.progress.at)
    return {**row, "delivered/s": round(consumer.consume_tps, 1), "waits": waits}


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@connection_options
@json_option
def clusters(name: str, connection: Connection, as_json: bool) -> None:
    """List the clusters whose brokers have the topic."""

    async def work(admin: Admin) -> None:
        show([{"cluster": cluster} for cluster in await admin.topics.clusters(name)], ["cluster"], as_json=as_json)

    with_admin(connection, work)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@connection_options
@click.option(
    "--sample",
    default=100,
    show_default=True,
    type=click.IntRange(1),
    help="The number of newest messages of each queue.",
)
@click.option("--ddl", is_flag=True, help="Print Spark's DDL, for from_json.")
@json_option
def schema(name: str, connection: Connection, sample: int, ddl: bool, as_json: bool) -> None:
    """Show the columns of the topic's bodies, inferred from each queue's newest messages."""
    if ddl and as_json:
        raise click.UsageError("--ddl and --json exclude each other")

    async def work() -> None:
        async with tools_consumer(connection) as consumer:
            body_schema = await consumer.infer_schema(name, sample=sample)
        if body_schema.is_cut:
            click.echo("the bodies have more names than columns are made for: the rest stays in the body", err=True)
        if ddl:
            click.echo(visible_text(body_schema.json_ddl))
            return
        rows = [
            {"column": column.name, "type": column.type, "bodies": column.bodies, "jsonName": column.json_name}
            for column in body_schema.columns
        ]
        show(rows, SCHEMA_COLUMNS, as_json=as_json)
        if not as_json:
            click.echo(_fitting(name, body_schema))

    run(work)


def _fitting(name: str, schema: BodySchema) -> str:
    if schema.form == "empty":
        return visible_text(f"topic {name} has no body to look at")
    what = {"json": "JSON objects", "text": "texts", "bytes": "looked at, and have no columns: they are bytes"}
    return visible_text(f"{schema.fitting} of {schema.sampled} bodies are {what[schema.form]}")
