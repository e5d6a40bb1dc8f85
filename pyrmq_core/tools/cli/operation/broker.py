"""`pyrmq broker` runs a broker. Its commands, such as `pyrmq broker list`, administer running brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from pyrmq_core.tools.cli.admin import with_admin
from pyrmq_core.tools.cli.confirmation import confirm, yes_option
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.name_completion import broker_names, cluster_option
from pyrmq_core.tools.cli.operation.server_groups import ServerGroup
from pyrmq_core.tools.cli.settings import changed_option, chosen_settings, settings_of, show_table
from pyrmq_core.tools.cli.tables import Watch, json_option, rendered, report, show, show_watched, text_of, watch_options

if TYPE_CHECKING:
    from pyrmq_core import Admin
    from pyrmq_core.client.admin.values import BrokerStatus
    from pyrmq_core.protocol.requests.figures.stats_data import BrokerStats

LIST_COLUMNS: Final = ("broker", "role", "address", "version", "in/s", "out/s", "disk", "state")
UNUSED_TOPICS: Final = "unused-topics"
CLEAN_UPS: Final = (UNUSED_TOPICS, "expired-queues", "expired-logs")

id_option = click.option(
    "--id", "broker_id", default=0, show_default=True, type=click.IntRange(0), help="The broker's id; 0 is the master."
)


def _run_broker(arguments: list[str]) -> int:
    from pyrmq_core.servers.broker.__main__ import main

    return main(arguments, prog="pyrmq broker")


broker = ServerGroup(
    "broker", _run_broker, "Run a broker, as `python -m pyrmq_core.servers.broker`; or administer brokers."
)


@broker.command("list")
@connection_options
@cluster_option
@watch_options
@json_option
def list_brokers(connection: Connection, cluster: str | None, watch: Watch, as_json: bool) -> None:
    """List brokers with their health: registered, reachable, release, rates, disk."""

    async def work(admin: Admin) -> None:
        async def make() -> str:
            rows = await admin.brokers.list(cluster=cluster)
            return brokers_text(rows, as_json=as_json)

        await show_watched(make, watch)

    with_admin(connection, work)


def brokers_text(rows: Sequence[BrokerStatus], *, as_json: bool) -> str:
    """Formats brokers as JSON with all figures, or as a table with the errors of brokers that did not answer below."""
    if as_json:
        return text_of([broker_members(row) for row in rows], (), as_json=True)
    several = len({row.cluster for row in rows}) > 1
    columns = ("cluster", *LIST_COLUMNS) if several else LIST_COLUMNS
    table = text_of([_row(row) for row in rows], columns, as_json=False)
    return table + rendered(*(f"{row.broker_name} ({row.broker_id}): {row.error}" for row in rows if row.error))


def broker_members(row: BrokerStatus) -> dict[str, object]:
    return {
        "cluster": row.cluster,
        "brokerName": row.broker_name,
        "brokerId": row.broker_id,
        "address": row.address,
        "reachable": row.reachable,
        "version": row.version,
        "putTps": row.put_tps,
        "getTps": row.get_tps,
        "messagesPutToday": row.messages_put_today,
        "messagesGotToday": row.messages_got_today,
        "diskRatio": row.disk_ratio,
        "diskFull": row.disk_full,
        "booted": None if row.booted is None else row.booted.isoformat(timespec="milliseconds"),
        "error": None if row.error is None else str(row.error),
    }


def _row(row: BrokerStatus) -> dict[str, object]:
    return {
        "cluster": row.cluster,
        "broker": row.broker_name,
        "role": "master" if row.is_master else f"slave {row.broker_id}",
        "address": row.address,
        "version": row.version,
        "in/s": row.put_tps,
        "out/s": row.get_tps,
        "disk": None if row.disk_ratio is None else f"{row.disk_ratio:.0%}",
        "state": _state(row),
    }


def _state(row: BrokerStatus) -> str:
    if row.error is not None:
        return "refuses" if row.reachable else "unreachable"
    return "disk full" if row.disk_full else "ok"


@broker.command()
@click.argument("name", metavar="BROKER", required=False, shell_complete=broker_names)
@click.argument("settings", metavar="[SETTING]...", nargs=-1)
@connection_options
@id_option
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a setting; may be given several times."
)
@click.option("--all", "everywhere", is_flag=True, help="With --set: at all masters, instead of BROKER.")
@cluster_option
@click.option("--force", is_flag=True, help="With --set: also a setting that the broker does not list.")
@changed_option
@json_option
def config(
    name: str | None,
    settings: tuple[str, ...],
    connection: Connection,
    broker_id: int,
    changes: tuple[str, ...],
    everywhere: bool,
    cluster: str | None,
    force: bool,
    differing: bool,
    as_json: bool,
) -> None:
    """Show a broker's settings, all or those named, or change some."""
    changed = settings_of(changes)
    if differing and (changed or name is not None):
        raise click.UsageError("--changed shows all brokers, and changes nothing: leave out BROKER and --set")
    if not changed and not differing and (name is None or everywhere or cluster):
        raise click.UsageError("name the BROKER whose settings are shown")
    if changed and [name is not None, everywhere, cluster is not None].count(True) != 1:
        raise click.UsageError("--set needs one of BROKER, --cluster and --all")
    if changed and (settings or broker_id):
        raise click.UsageError("--set changes masters, and shows nothing: leave out --id and the names of settings")

    async def work(admin: Admin) -> None:
        if differing:
            table = await admin.brokers.settings(cluster=cluster)
            show_table(table, table.unusual, as_json=as_json)
            return
        if changed:
            done = await admin.brokers.update_config(changed, broker=name, cluster=cluster, force=force)
            rows = [
                {"brokerName": broker_name, "setting": name, "value": changed[name]}
                for broker_name in done
                for name in changed
            ]
            report(f"changed at {', '.join(done)}", rows, as_json=as_json)
            return
        assert name is not None
        values = chosen_settings(await admin.brokers.config(name, broker_id=broker_id), settings, name)
        show(
            [{"setting": setting, "value": values[setting]} for setting in values],
            ["setting", "value"],
            as_json=as_json,
        )

    with_admin(connection, work)


@broker.command()
@click.argument("name", metavar="BROKER", shell_complete=broker_names)
@click.argument("figure", metavar="[FIGURE]", required=False)
@click.argument("key", metavar="[KEY]", required=False)
@connection_options
@id_option
@watch_options
@json_option
def stats(
    name: str,
    figure: str | None,
    key: str | None,
    connection: Connection,
    broker_id: int,
    watch: Watch,
    as_json: bool,
) -> None:
    """Show a broker's own figures, or one by RocketMQ's name and key, such as TOPIC_PUT_NUMS orders."""
    if figure is not None and key is None:
        raise click.UsageError(f"{figure} needs a KEY: a topic, topic@group or the cluster")

    async def work(admin: Admin) -> None:
        async def make() -> str:
            if figure is None or key is None:
                table = (await admin.brokers.runtime_info(name, broker_id=broker_id)).table
                rows = [
                    {"figure": name_of_figure, "value": table[name_of_figure].strip()}
                    for name_of_figure in sorted(table)
                ]
                return text_of(rows, ["figure", "value"], as_json=as_json)
            statistic = await admin.brokers.stats(name, figure, key, broker_id=broker_id)
            if statistic is None:
                raise click.ClickException(f"{name} has no figure {figure} of {key}: nothing of it was counted yet")
            return text_of(_periods(statistic), ["period", "sum", "tps", "average"], as_json=as_json)

        await show_watched(make, watch)

    with_admin(connection, work)


def _periods(stats: BrokerStats) -> list[dict[str, object]]:
    periods = {"minute": stats.minute, "hour": stats.hour, "day": stats.day}
    return [
        {"period": name, "sum": rate.sum, "tps": rate.tps, "average": rate.average} for name, rate in periods.items()
    ]


@broker.command()
@click.argument("name", metavar="BROKER", shell_complete=broker_names)
@connection_options
@id_option
@json_option
def ha(name: str, connection: Connection, broker_id: int, as_json: bool) -> None:
    """Show a master's slaves and their lag, or with --id how a slave follows (5.0 and later)."""

    async def work(admin: Admin) -> None:
        status = await admin.brokers.ha_status(name, broker_id=broker_id)
        if status.master:
            rows = [
                {"slave": slave.address, "inSync": slave.in_sync, "behindBytes": slave.diff, "bytesPerSecond": rate}
                for slave in status.connections
                for rate in (slave.transferred_bytes_per_second,)
            ]
            show(rows, ["slave", "inSync", "behindBytes", "bytesPerSecond"], as_json=as_json)
            return
        client = status.client
        rows = [] if client is None else [{"master": client.master_address, "maxOffset": client.max_offset}]
        show(rows, ["master", "maxOffset"], as_json=as_json)

    with_admin(connection, work)


@broker.command()
@click.argument("what", type=click.Choice(CLEAN_UPS))
@click.argument("name", metavar="[BROKER]", required=False, shell_complete=broker_names)
@connection_options
@cluster_option
@yes_option
@json_option
def clean(what: str, name: str | None, connection: Connection, cluster: str | None, yes: bool, as_json: bool) -> None:
    """Make a broker, or all masters, remove data that they no longer need.

    unused-topics are queues of topics without settings at a broker: they are deleted, so their messages cannot be read
    any more.
    """
    if what == UNUSED_TOPICS and not yes:
        confirm(f"Delete the queues of all topics without settings, at {name or 'all masters'}?")

    async def work(admin: Admin) -> None:
        brokers = admin.brokers
        calls = (brokers.clean_unused_topics, brokers.clean_expired_queues, brokers.delete_expired_logs)
        done = await dict(zip(CLEAN_UPS, calls, strict=True))[what](broker=name, cluster=cluster)
        rows = [{"brokerName": broker_name, "cleaned": what} for broker_name in done]
        report(f"{what}: done at {', '.join(done)}", rows, as_json=as_json)

    with_admin(connection, work)


@broker.command("wipe-write-perm")
@click.argument("name", metavar="BROKER", shell_complete=broker_names)
@connection_options
@json_option
def wipe_write_perm(name: str, connection: Connection, as_json: bool) -> None:
    """Close a broker for writing at every NameServer, before it is stopped."""

    async def work(admin: Admin) -> None:
        _say_topics(name, await admin.brokers.wipe_write_perm(name), "is closed for writing", as_json=as_json)

    with_admin(connection, work)


@broker.command("add-write-perm")
@click.argument("name", metavar="BROKER", shell_complete=broker_names)
@connection_options
@json_option
def add_write_perm(name: str, connection: Connection, as_json: bool) -> None:
    """Open a broker for writing again at every NameServer."""

    async def work(admin: Admin) -> None:
        _say_topics(name, await admin.brokers.add_write_perm(name), "is open for writing", as_json=as_json)

    with_admin(connection, work)


def _say_topics(name: str, counts: dict[str, int], what: str, *, as_json: bool) -> None:
    lines = [f"{name} {what} at NameServer {address}: {topics} topics" for address, topics in counts.items()]
    rows = [{"nameserver": address, "brokerName": name, "topics": topics} for address, topics in counts.items()]
    report("\n".join(lines), rows, as_json=as_json)
