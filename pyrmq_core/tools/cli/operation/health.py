"""`pyrmq health`: checks for scripts whether a cluster works: exit status 0, or 1 with the faults printed.

Every master answers, and has the slaves for which it waits. No queue is without a master, no disk is full, and with
`--max-lag` no group lags too far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from pyrmq_core import RocketMQError
from pyrmq_core.errors import InvalidArgument, NoRoute, ResponseError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.doctor import FAIL, OK, WARN, Check
from pyrmq_core.tools.cli.json_output import json_text
from pyrmq_core.tools.cli.name_completion import group_names
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.tables import json_option

if TYPE_CHECKING:
    from pyrmq_core import Admin
    from pyrmq_core.client.admin.values import BrokerStatus
    from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo

MOST_NAMES: Final = 5


@click.command(cls=SectionedCommand)
@connection_options
@click.option("--max-lag", type=click.IntRange(0), help="The most messages that a group may lag.")
@click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    help="With --max-lag: only this group; may be given several times.",
    shell_complete=group_names,
)
@click.option(
    "--max-disk",
    default=90,
    show_default=True,
    type=click.IntRange(1, 100),
    help="The most used percent of a commit log's disk.",
)
@json_option
def health(connection: Connection, max_lag: int | None, groups: tuple[str, ...], max_disk: int, as_json: bool) -> None:
    """Check masters, queues, disks and lag. Ends with 1 if something is wrong."""
    if groups and max_lag is None:
        raise click.UsageError("--group needs --max-lag, the bound for its lag")
    checks: list[Check] = []

    async def work() -> None:
        checks.extend(await _check_nameservers(connection))
        async with connection.admin() as admin:
            info = await admin.cluster_info()
            brokers = await admin.brokers.list()
            checks.extend(check_brokers(brokers, max_disk))
            checks.extend(await _check_replication(admin, brokers))
            checks.extend(await _check_queues(admin, info))
            if max_lag is not None:
                checks.extend(await _check_lag(admin, groups, max_lag))

    run(work)
    if as_json:
        click.echo(json_text([asdict(check) for check in checks]))
    else:
        for check in checks:
            click.echo(visible_text(check.line()))
    raise SystemExit(1 if any(check.status == FAIL for check in checks) else 0)


def check_brokers(rows: Iterable[BrokerStatus], max_disk: int) -> Iterator[Check]:
    """Yields a check for each address: a master that gives no answer fails, a slave is a warning."""
    empty = True
    for row in rows:
        empty = False
        where = f"{row.broker_name} ({row.broker_id}) {row.address}"
        if not row.reachable:
            yield Check("broker", FAIL if row.is_master else WARN, f"{where}: {row.error}")
        elif row.error is not None:
            yield Check("broker", WARN, f"{where} answers, and refuses its figures: {row.error}")
        elif row.disk_ratio is not None and row.disk_ratio * 100 > max_disk:
            full = f"{where}: {row.disk_ratio:.0%} of the log's disk are used"
            yield Check("disk", FAIL, full, f"more than {max_disk}%: the broker refuses sends when its disk is full")
        else:
            yield Check("broker", OK, f"{where}, {row.version}")
    if empty:
        yield Check("broker", FAIL, "the NameServer knows none", "start one, or look at its namesrvAddr")


def check_order(values: Mapping[str, str], info: ClusterInfo) -> Iterator[Check]:
    """Yields a failure for each order topic with queues at a broker that is not registered or has no master."""
    from pyrmq_core.client.admin.topics import parse_order

    masters = {name for name, broker in info.broker_addr_table.items() if broker.master is not None}
    for topic, text in sorted(values.items()):
        try:
            missing = sorted(parse_order(topic, text).keys() - masters)
        except InvalidArgument as error:
            yield Check("order", WARN, str(error))
        else:
            if missing:
                fault = f"order topic {topic} has queues at {', '.join(missing)}, without a master"
                yield Check("order", FAIL, fault, "their keys cannot be sent: start the broker")


def slaves_awaited(settings: Mapping[str, str]) -> int:
    """Returns the number of slaves for which a master with these settings waits before it answers a send."""
    if settings.get("brokerRole") != "SYNC_MASTER":
        return 0
    if "inSyncReplicas" not in settings or int(settings.get("haSlaveFallbehindMax", -1)) >= 0:  # settings of 4.9
        return max(1, int(settings.get("inSyncReplicas", 1)) - 1)
    return int(settings["inSyncReplicas"]) - 1


async def _check_replication(admin: Admin, rows: Iterable[BrokerStatus]) -> list[Check]:
    """Checks that masters have the slaves for which their sends wait. Masters that wait for none have no line."""
    checks = []
    for row in rows:
        if not row.is_master or not row.reachable or row.error is not None:
            continue
        try:
            awaited = slaves_awaited(await admin.brokers.config(row.broker_name))
            following = await _slaves_of(admin, row.broker_name) if awaited else 0
        except RocketMQError as error:
            checks.append(Check("replication", WARN, f"of {row.broker_name} is not known: {error}"))
            continue
        if following < awaited:
            text = f"{row.broker_name} waits for {awaited} slaves before it answers a send, and {following} follow it"
            remedy = "its sends end with FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE: start its slaves"
            checks.append(Check("replication", FAIL, text, remedy))
    return checks


async def _slaves_of(admin: Admin, broker: str) -> int:
    """Returns the number of slaves that are near their master, or of a 4.9 broker's registered slaves."""
    try:
        return (await admin.brokers.ha_status(broker)).in_sync_slave_nums
    except ResponseError:
        registered = (await admin.cluster_info()).broker_addr_table.get(broker)
        return 0 if registered is None else len(registered.broker_addrs) - (registered.master is not None)


async def _check_nameservers(connection: Connection) -> list[Check]:
    """Checks each NameServer. One of several that is missing is a warning, since clients try the next.

    NameServers that list different brokers are a failure: a Java client believes the NameServer that it chose.
    """
    checks = []
    brokers: dict[str, set[str]] = {}
    for address in await connection.nameservers():
        try:
            async with connection.at(address).admin() as admin:
                table = (await admin.cluster_info()).broker_addr_table.values()
        except RocketMQError as error:
            checks.append(Check("nameserver", WARN, f"{address}: {error}"))
        else:
            checks.append(Check("nameserver", OK, address))
            addresses = ((data.broker_name, *server) for data in table for server in data.broker_addrs.items())
            brokers[address] = {f"{name} ({broker_id}) {broker}" for name, broker_id, broker in addresses}
    return [*checks, *check_agreement(brokers)]


def check_agreement(brokers: Mapping[str, set[str]]) -> Iterator[Check]:
    """Yields a failure for each NameServer that lacks brokers of another NameServer."""
    everywhere = set().union(*brokers.values())
    for address, registered in brokers.items():
        if missing := sorted(everywhere - registered):
            names = f"{', '.join(missing[:MOST_NAMES])}{', ...' if len(missing) > MOST_NAMES else ''}"
            remedy = "NameServers share nothing: name all of them in each broker's namesrvAddr"
            yield Check("nameserver", FAIL, f"{address} lacks {names}, which another NameServer has", remedy)


async def _check_queues(admin: Admin, info: ClusterInfo) -> list[Check]:
    """Checks that each broker with queues has a master. Routes are looked up only if a broker has no master."""
    from pyrmq_core.client.admin.topics import ORDER_NAMESPACE
    from pyrmq_core.client.query_many import query_many

    headless = {name for name, broker in info.broker_addr_table.items() if broker.master is None}
    try:
        checks = list(check_order(await admin.kv_values(ORDER_NAMESPACE), info))
    except ResponseError as error:
        checks = [Check("order", WARN, f"not known: {error}")]
    if not headless:
        return [*checks, Check("queues", OK, "every registered queue has a master")]

    async def brokers_of(topic: str) -> set[str]:
        try:
            return {queues.broker_name for queues in (await admin.route(topic)).queue_datas}
        except NoRoute:  # the topic was deleted meanwhile
            return set()

    brokers_with = await query_many(await admin.topics.list(), brokers_of)
    for name in sorted(headless):
        topics = sorted(topic for topic, brokers in brokers_with.items() if name in brokers)
        named = f"{', '.join(topics[:MOST_NAMES])}{', ...' if len(topics) > MOST_NAMES else ''}"
        text = f"{name} has no master: its queues of {len(topics)} topics take no message ({named})"
        checks.append(Check("queues", FAIL, text, "start its master"))
    return checks


async def _check_lag(admin: Admin, groups: tuple[str, ...], max_lag: int) -> list[Check]:
    """Checks the lag of the groups, or of all. A group whose lag is not known fails if it was named."""
    lags: dict[str, int] = {}
    beyond: dict[str, int] = {}
    checks = []
    try:
        if groups:
            for group in groups:
                progress = await admin.groups.progress(group)
                if progress.lag is not None:
                    lags[group] = progress.lag
                    beyond[group] = sum(row.lag < 0 for row in progress.queues)
                else:
                    absent = f"group {group} has no offsets, so its lag is not known"
                    checks.append(Check("lag", FAIL, absent, "look at its name; it has some when a member consumes"))
                checks += [Check("lag", WARN, f"{group}: {error}") for error in progress.failures.values()]
        else:
            listed = await admin.groups.list()
            lags = {summary.group: summary.lag for summary in listed.groups}
            beyond = {summary.group: summary.queues_beyond_end for summary in listed.groups}
            checks += [Check("lag", WARN, str(error)) for error in listed.failures.values()]
    except ResponseError as error:
        checks.append(Check("lag", FAIL, f"not known: {error}"))
    for group, queues in beyond.items():
        if queues:
            text = f"group {group} has offsets beyond the ends of {queues} queues"
            checks.append(Check("lag", WARN, text, f"they became shorter: pyrmq group progress {group}, then reset"))
    late = [Check("lag", FAIL, f"group {name} is {lag} messages behind") for name, lag in lags.items() if lag > max_lag]
    if lags and not late:
        late.append(Check("lag", OK, f"{len(lags)} groups, the furthest {max(lags.values())} messages behind"))
    return [*checks, *late]
