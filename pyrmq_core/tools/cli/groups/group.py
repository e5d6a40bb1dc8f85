"""`pyrmq group` and `pyrmq clients`: consumer groups, their members, their progress, and changes of offsets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from pyrmq_core.model import MessageQueue
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.protocol.messages.names import is_system_group
from pyrmq_core.tools.cli.admin import with_admin
from pyrmq_core.tools.cli.confirmation import confirm, yes_option
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.groups.rows import (
    beyond_text,
    change_row,
    check_group_known,
    client_row,
    consumer_row,
    description_members,
    failed_text,
    group_members,
    group_row,
    producer_row,
    progress_members,
    progress_row,
)
from pyrmq_core.tools.cli.name_completion import broker_names, cluster_option, group_names, topic_names
from pyrmq_core.tools.cli.servers import CommandGroup, SectionedCommand
from pyrmq_core.tools.cli.tables import Watch, json_option, rendered, report, show, show_watched, text_of, watch_options
from pyrmq_core.tools.cli.times import age, instant, shown_time
from pyrmq_core.tools.search.json_output import json_text

if TYPE_CHECKING:
    from pyrmq_core import Admin
    from pyrmq_core.client.admin.values import GroupDescription, GroupList, GroupProgress

LIST_COLUMNS: Final = ("group", "members", "type", "model", "lag", "topics")
CLIENT_COLUMNS: Final = ("client", "address", "language", "version", "queues", "ms", "ok/s", "failed/s")
PROGRESS_COLUMNS: Final = ("topic", "broker", "queue", "offset", "end", "lag", "waits")
CHANGE_COLUMNS: Final = ("topic", "brokerName", "queueId", "before", "after")
ALL_CLIENTS_COLUMNS: Final = ("kind", "group", "client", "address", "language", "version", "seen")
SETTING_COLUMNS: Final = ("broker", "consumeEnable", "retryMaxTimes", "retryQueueNums", "consumeBroadcastEnable")

# The number of repeats of --watch over which the rate of acknowledged messages is computed.
LOOKS: Final = 10


@click.group(cls=CommandGroup)
def group() -> None:
    """List, describe, create and delete consumer groups, show and change their offsets."""


@group.command("list")
@connection_options
@click.option("-a", "--all", "all_groups", is_flag=True, help="Also RocketMQ's own groups.")
@watch_options
@json_option
def list_groups(connection: Connection, all_groups: bool, watch: Watch, as_json: bool) -> None:
    """List groups with their members, type and lag."""

    async def work(admin: Admin) -> None:
        async def make() -> str:
            return groups_text(await admin.groups.list(), all_groups=all_groups, as_json=as_json)

        await show_watched(make, watch)

    with_admin(connection, work)


def groups_text(listed: GroupList, *, all_groups: bool, as_json: bool) -> str:
    rows = [row for row in listed.groups if all_groups or not is_system_group(row.group)]
    if as_json:
        table = text_of([group_members(row) for row in rows], (), as_json=True)
    else:
        table = text_of([group_row(row) for row in rows], LIST_COLUMNS, as_json=False)
        beyond = [row for row in rows if row.queues_beyond_end]
        text = "group {0}: {1} offsets are beyond their queues' ends: pyrmq group progress {0}"
        table += rendered(*(text.format(row.group, row.queues_beyond_end) for row in beyond))
    return table + failed_text(listed.failures, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@connection_options
@json_option
def describe(name: str, connection: Connection, as_json: bool) -> None:
    """Show a group's settings, subscriptions and members."""

    async def work(admin: Admin) -> None:
        click.echo(description_text(await admin.groups.describe(name), as_json=as_json), nl=False)

    with_admin(connection, work)


def description_text(description: GroupDescription, *, as_json: bool) -> str:
    failed = failed_text(description.failures, as_json=as_json)
    if as_json:
        return text_of([description_members(description)], (), as_json=True)
    settings = [{"broker": name, **config.to_members()} for name, config in sorted(description.configs.items())]
    subscriptions = [
        {"topic": subscription.topic, "expression": subscription.sub_string, "type": subscription.expression_type}
        for subscription in description.subscriptions
    ]
    parts = [text_of(settings, SETTING_COLUMNS, as_json=False)] if settings else []
    if subscriptions:
        parts.append(text_of(subscriptions, ("topic", "expression", "type"), as_json=False))
    if description.members:
        reports = [
            f"{member.client_id} gave no report: {member.error}"
            for member in description.members
            if member.error is not None
        ]
        table = text_of([client_row(member) for member in description.members], CLIENT_COLUMNS, as_json=False)
        parts.append(table + rendered(*reports))
    else:
        parts.append(f"no member of group {description.group} is connected\n")
    return "\n".join(parts) + failed


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.argument("client", metavar="CLIENT")
@connection_options
@json_option
def stack(name: str, client: str, connection: Connection, as_json: bool) -> None:
    """Print the stacks of a member's threads."""

    async def work(admin: Admin) -> None:
        text = await admin.groups.stack(name, client)
        click.echo(json_text({"stack": text}) if as_json else visible_text(text))

    with_admin(connection, work)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@connection_options
@click.option("-t", "--topic", help="Only this topic.", shell_complete=topic_names)
@click.option("--members", is_flag=True, help="Show each queue's client, and why messages wait.")
@watch_options
@json_option
def progress(name: str, connection: Connection, topic: str | None, members: bool, watch: Watch, as_json: bool) -> None:
    """Show a group's offset and lag in each queue, and how long messages wait."""

    async def work(admin: Admin) -> None:
        earlier: list[GroupProgress] = []

        async def make() -> str:
            group_progress = await admin.groups.progress(name, topic=topic, members=members)
            tps = group_progress.acknowledged_tps(earlier[0]) if earlier else None
            # Members commit offsets every 5 s, so that a rate over fewer repeats would jump.
            earlier[:] = [*earlier, group_progress][-LOOKS:]
            if not group_progress.queues:
                await check_group_known(admin, name)
                if topic is not None:
                    await admin.route(topic)
            return progress_text(group_progress, members=members, as_json=as_json, acknowledged_tps=tps)

        await show_watched(make, watch)

    with_admin(connection, work)


def progress_text(
    group_progress: GroupProgress, *, members: bool, as_json: bool, acknowledged_tps: float | None = None
) -> str:
    if as_json:
        reason_of = {queue: reason.text for reason in group_progress.reasons for queue in reason.queues}
        rows = [{**progress_members(row), "reason": reason_of.get(row.queue)} for row in group_progress.queues]
        table = text_of(rows, (), as_json=True)
        return table + failed_text(group_progress.failures, as_json=True)
    now = datetime.now(UTC)
    if not group_progress.queues:
        text = f"group {group_progress.group} has no offsets: no member has consumed\n"
        if group_progress.failures:
            text = f"no broker that answered has offsets of group {group_progress.group}\n"
        return text + failed_text(group_progress.failures, as_json=False)
    columns = (*PROGRESS_COLUMNS, "client") if members else PROGRESS_COLUMNS
    table = text_of([progress_row(row, now) for row in group_progress.queues], columns, as_json=False)
    oldest = age(group_progress.waiting_since, now)
    waiting = "" if oldest is None else f", the oldest for {oldest} (since {shown_time(group_progress.waiting_since)})"
    summary = f"{group_progress.lag} messages wait{waiting}; {group_progress.consume_tps:.1f} delivered a second"
    if acknowledged_tps is not None:
        summary += f", {acknowledged_tps:.1f} acknowledged"
    error = group_progress.members_error
    reasons = [f"{reason.lag} wait: {reason.text}" for reason in group_progress.reasons]
    return (
        table
        + rendered(summary, *reasons, *(() if error is None else (f"why is not known: {error}",)))
        + beyond_text(group_progress.queues)
        + failed_text(group_progress.failures, as_json=False)
    )


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@connection_options
@click.option(
    "-t", "--topic", required=True, help="The topic whose queues get new offsets.", shell_complete=topic_names
)
@click.option("--to", "target", required=True, help="earliest, latest, or an ISO-8601 time.")
@click.option("--offline", is_flag=True, help="Fail while members are connected.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and change nothing.")
@json_option
def reset(
    name: str, connection: Connection, topic: str, target: str, offline: bool, dry_run: bool, as_json: bool
) -> None:
    """Give a group new offsets in all queues of a topic. Connected members continue at them."""
    to = target if target in ("earliest", "latest") else instant(target, "--to", or_else="earliest, latest or ")

    async def work(admin: Admin) -> None:
        if dry_run:
            changes = await admin.groups.preview_reset(name, topic, to)  # type: ignore[arg-type]
        else:
            changes = await admin.groups.reset(name, topic, to, offline=offline)  # type: ignore[arg-type]
        show([change_row(change) for change in changes], CHANGE_COLUMNS, as_json=as_json)

    with_admin(connection, work)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@connection_options
@click.option("-t", "--topic", required=True, help="The queue's topic.", shell_complete=topic_names)
@click.option(
    "-b", "--broker", required=True, metavar="BROKER", help="The queue's broker.", shell_complete=broker_names
)
@click.option("-q", "--queue", "queue_id", required=True, type=click.IntRange(0), help="The queue's number.")
@click.option(
    "-o", "--offset", required=True, type=click.IntRange(0), help="The offset of the next message to consume."
)
@json_option
def seek(name: str, connection: Connection, topic: str, broker: str, queue_id: int, offset: int, as_json: bool) -> None:
    """Give a group a new offset in one queue."""

    async def work(admin: Admin) -> None:
        change = await admin.groups.seek(name, MessageQueue(topic, broker, queue_id), offset)
        show([change_row(change)], CHANGE_COLUMNS, as_json=as_json)

    with_admin(connection, work)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.argument("to", metavar="TO", shell_complete=group_names)
@connection_options
@click.option("-t", "--topic", help="Only this topic's offsets.", shell_complete=topic_names)
@json_option
def clone(name: str, to: str, connection: Connection, topic: str | None, as_json: bool) -> None:
    """Give the group TO the offsets of GROUP."""

    async def work(admin: Admin) -> None:
        topics = await admin.groups.clone(name, to, topic=topic)
        rows = [{"group": to, "from": name, "topic": cloned} for cloned in topics]
        report(f"group {to} has the offsets of {name} in {', '.join(topics)}", rows, as_json=as_json)

    with_admin(connection, work)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@connection_options
@cluster_option
@click.option("-b", "--broker", help="Only the broker of this name.", shell_complete=broker_names)
@click.option(
    "-r", "--retryMaxTimes", "retry_max_times", type=click.IntRange(-1), help="The most retries of a message."
)
@click.option(
    "-q",
    "--retryQueueNums",
    "retry_queue_nums",
    type=click.IntRange(0),
    help="The number of queues of its retry topic.",
)
@click.option("--consume/--no-consume", "consume_enable", default=None, help="Whether members may consume.")
@click.option(
    "--broadcast/--no-broadcast",
    "consume_broadcast_enable",
    default=None,
    help="Whether members may consume in broadcast mode.",
)
@click.option(
    "--orderly/--no-orderly",
    "consume_message_orderly",
    default=None,
    help="Whether messages are consumed in order (5.x).",
)
@json_option
def create(
    name: str,
    connection: Connection,
    cluster: str | None,
    broker: str | None,
    retry_max_times: int | None,
    retry_queue_nums: int | None,
    consume_enable: bool | None,
    consume_broadcast_enable: bool | None,
    consume_message_orderly: bool | None,
    as_json: bool,
) -> None:
    """Create a group, or change the settings that are given."""

    async def work(admin: Admin) -> None:
        await admin.groups.create(
            name,
            cluster=cluster,
            broker=broker,
            retry_max_times=retry_max_times,
            retry_queue_nums=retry_queue_nums,
            consume_enable=consume_enable,
            consume_broadcast_enable=consume_broadcast_enable,
            consume_message_orderly=consume_message_orderly,
        )
        report(f"group {name} is there", [{"group": name}], as_json=as_json)

    with_admin(connection, work)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@connection_options
@cluster_option
@click.option("--force", is_flag=True, help="Also delete while members are connected.")
@yes_option
@json_option
def delete(name: str, connection: Connection, cluster: str | None, force: bool, yes: bool, as_json: bool) -> None:
    """Delete a group with its offsets, retries and dead letters."""
    if not yes:
        confirm(f"Delete group {name} with its offsets, and the messages of %RETRY%{name} and %DLQ%{name}?")

    async def work(admin: Admin) -> None:
        if not await admin.groups.config(name):
            raise click.ClickException(f"no broker knows a group {name}; nothing is deleted")
        await admin.groups.delete(name, cluster=cluster, force=force)
        report(f"group {name} is deleted", [{"group": name}], as_json=as_json)

    with_admin(connection, work)


@click.command(cls=SectionedCommand)
@connection_options
@click.option("-g", "--group", help="Only members of this group, producers and consumers.", shell_complete=group_names)
@json_option
def clients(connection: Connection, group: str | None, as_json: bool) -> None:
    """List the producers and consumers that are connected."""

    async def work(admin: Admin) -> None:
        producers = await (admin.producers.list() if group is None else admin.producers.members(group))
        listed = await admin.groups.list()
        rows = [
            *(producer_row(producer, as_json=as_json) for producer in producers.producers),
            *(
                consumer_row(row.group, member)
                for row in listed.groups
                if group in (None, row.group)
                for member in row.clients
            ),
        ]
        show(rows, ALL_CLIENTS_COLUMNS, as_json=as_json)
        failures = {**listed.failures, **producers.failures}
        click.echo(failed_text(failures, as_json=as_json), nl=False)

    with_admin(connection, work)
