"""`Admin.health`: checks of a cluster, by the same rules as the command `pyrmq health` and the web page of the tools.

`take_health` queries the servers, and `health_rules` decides from their answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import trio

from pyrmq_core.client.admin.brokers import Brokers
from pyrmq_core.client.admin.groups import Groups
from pyrmq_core.client.admin.health_rules import (
    FAIL,
    MAX_DISK,
    OK,
    WARN,
    Health,
    HealthCheck,
    check_agreement,
    check_brokers,
    check_disks,
    check_growth,
    check_lags,
    check_order,
    check_subscriptions,
    check_versions,
    first_names,
    slaves_awaited,
)
from pyrmq_core.client.admin.servers import AdminServers
from pyrmq_core.client.admin.topics import ORDER_NAMESPACE, Topics
from pyrmq_core.client.admin.values import BrokerStatus, GroupSummary
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.query_many import query_many
from pyrmq_core.client.texts import Text
from pyrmq_core.errors import InvalidArgument, ResponseError, RocketMQError
from pyrmq_core.model import Permission
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, TOOLS_GROUP, is_dead_letter_topic, is_system_group
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo, GetClusterInfo
from pyrmq_core.protocol.requests.nameserver.kv_config import GetKvList, KvTable
from pyrmq_core.protocol.routes.route import TopicRouteData

NEW_LETTERS_OF: Final = timedelta(hours=24)
# The most members that are queried for their subscriptions, and the most dead-letter topics that are counted.
MAX_MEMBERS: Final = 500
MAX_LETTER_TOPICS: Final = 500
QUERIES_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class HealthBounds:
    """The limits of checks: `max_disk` percent of a disk may be used, and a group may be `max_lag` messages behind.

    `max_lag` applies to the groups in `lag_of`, or to all if that is empty. None means no limit.
    """

    max_disk: int = MAX_DISK
    max_lag: int | None = None
    lag_of: Sequence[str] = ()


async def take_health(servers: AdminServers, bounds: HealthBounds, *, of_groups: bool, before: Health | None) -> Health:
    info = await servers.cluster_info()
    checks = await _check_nameservers(servers)
    brokers = await Brokers(servers).list()
    now_at = datetime.now(UTC)
    disks = {row.address: row.disk_ratio for row in brokers if row.disk_ratio is not None}
    checks += [*check_brokers(brokers, bounds.max_disk), *check_versions(brokers)]
    checks += [*await _check_replication(servers, brokers), *await _check_queues(servers, info)]
    checks += await _check_writes(servers, info)
    groups: Sequence[GroupSummary] = ()
    if of_groups or (bounds.max_lag is not None and not bounds.lag_of):
        try:
            listed = await Groups(servers).list()
        except ResponseError as error:
            checks.append(HealthCheck("lag", WARN if bounds.max_lag is None else FAIL, _not_known(error)))
        else:
            groups = listed.groups
            checks += [HealthCheck("lag", WARN, str(error)) for error in listed.failures.values()]
    since = None if before is None else before.taken
    now = Health((), now_at, since, disks, {group.group: group.lag for group in groups})
    if of_groups:
        checks += await _check_members(servers, groups)
        checks += await _check_dead_letters(servers, now_at - NEW_LETTERS_OF)
    if before is not None:
        checks += [*check_disks(before, now, brokers, bounds.max_disk), *check_growth(before, now, groups)]
    beyond = {group.group: group.queues_beyond_end for group in groups}
    if bounds.lag_of:
        checks += await _check_named_lags(servers, bounds)
    elif groups or bounds.max_lag is not None:
        checks += check_lags(now.lags, beyond, bounds.max_lag)
    return replace(now, checks=tuple(checks))


async def _check_nameservers(servers: AdminServers) -> list[HealthCheck]:
    """Checks each NameServer. If one does not answer, that is a warning, since clients query the next.

    If NameServers list different brokers, that is a failure, since a Java client uses only one NameServer's answer.
    """
    checks = []
    brokers: dict[str, set[str]] = {}
    for address in servers.session.nameservers.addresses:
        try:
            answer = await servers.session.call(address, GetClusterInfo().to_command(), timeout=servers.timeout)
            if answer.code != ResponseCode.SUCCESS:
                raise response_error(answer, GetClusterInfo.CODE, f"NameServer {address}")
            table = ClusterInfo.from_command(answer).broker_addr_table.values()
        except RocketMQError as error:
            checks.append(HealthCheck("nameserver", WARN, f"{address}: {error}", subject=address))
        else:
            checks.append(HealthCheck("nameserver", OK, address, subject=address))
            addresses = ((data.broker_name, *server) for data in table for server in data.broker_addrs.items())
            brokers[address] = {f"{name} ({broker_id}) {broker}" for name, broker_id, broker in addresses}
    return [*checks, *check_agreement(brokers)]


async def _check_replication(servers: AdminServers, rows: Iterable[BrokerStatus]) -> list[HealthCheck]:
    """Checks that each master has as many slaves as it waits for before it answers a send.

    There is no check for a master that waits for no slave.
    """
    checks = []
    for row in rows:
        name = row.broker_name
        if not row.is_master or not row.reachable or row.error is not None:
            continue
        try:
            awaited = slaves_awaited(await Brokers(servers).config(name))
            following = await _slaves_of(servers, name) if awaited else 0
        except RocketMQError as error:
            text = Text("of {broker} is not known: {error}", broker=name, error=str(error))
            checks.append(HealthCheck("replication", WARN, text, subject=name))
            continue
        if following < awaited:
            values = {"broker": name, "awaited": awaited, "number": following}
            text = Text(
                "{broker} waits for {awaited} slaves before it answers a send, and {number} follow it", **values
            )
            remedy = Text("its sends end with FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE: start its slaves")
            checks.append(HealthCheck("replication", FAIL, text, remedy, name))
    return checks


async def _slaves_of(servers: AdminServers, broker: str) -> int:
    try:
        return (await Brokers(servers).ha_status(broker)).in_sync_slave_nums
    except ResponseError:
        registered = (await servers.cluster_info()).broker_addr_table.get(broker)
        return 0 if registered is None else len(registered.broker_addrs) - (registered.master is not None)


async def _check_queues(servers: AdminServers, info: ClusterInfo) -> list[HealthCheck]:
    headless = {name for name, broker in info.broker_addr_table.items() if broker.master is None}
    query = GetKvList(ORDER_NAMESPACE).to_command()
    try:
        values = await servers.ask_nameserver(query, KvTable.table_in, ResponseCode.QUERY_NOT_FOUND)
        checks = list(check_order(values, info))
    except ResponseError as error:
        checks = [HealthCheck("order", WARN, _not_known(error))]
    if not headless:
        return [*checks, HealthCheck("queues", OK, "every registered queue has a master")]

    async def brokers_of(topic: str) -> set[str]:
        route = await _route(servers, servers.on_wire(topic))
        return set() if route is None else {queues.broker_name for queues in route.queue_datas}

    brokers_with = await query_many(await Topics(servers).list(), brokers_of)
    for name in sorted(headless):
        topics = sorted(topic for topic, brokers in brokers_with.items() if name in brokers)
        values = {"broker": name, "number": str(len(topics)), "topics": first_names(topics)}
        text = Text("{broker} has no master: its queues of {number} topics take no message ({topics})", **values)
        checks.append(HealthCheck("queues", FAIL, text, Text("start its master"), name))
    return checks


async def _check_writes(servers: AdminServers, info: ClusterInfo) -> list[HealthCheck]:
    masters = sorted(name for name, broker in info.broker_addr_table.items() if broker.master is not None)

    async def is_closed(name: str) -> bool:
        try:
            route = await _route(servers, name)
        except RocketMQError:  # the check of NameServers reports it
            return False
        perms = [data.perm for data in (route.queue_datas if route is not None else ()) if data.broker_name == name]
        return any(not perm & Permission.WRITE for perm in perms)

    closed = await query_many(masters, is_closed, trio.CapacityLimiter(QUERIES_AT_ONCE))
    return [
        HealthCheck(
            "writes",
            FAIL,
            Text("{broker} is closed for writing", broker=name),
            Text("pyrmq broker add-write-perm {broker} opens it", broker=name),
            name,
        )
        for name in masters
        if closed[name]
    ]


async def _route(servers: AdminServers, on_wire: str) -> TopicRouteData | None:
    return await servers.session.routes.query(on_wire, timeout=servers.timeout)


async def _check_members(servers: AdminServers, groups: Iterable[GroupSummary]) -> list[HealthCheck]:
    asked, left = [], 0
    members = 0
    for group in groups:
        if group.members > 1 and not is_system_group(group.group):
            members += group.members
            if members <= MAX_MEMBERS:
                asked.append(group.group)
            else:
                left += 1

    async def of(group: str) -> list[HealthCheck]:
        try:
            return list(check_subscriptions(group, (await Groups(servers).describe(group)).members))
        except InvalidArgument:  # the group was deleted during the check
            return []
        except RocketMQError as error:
            return [HealthCheck("members", WARN, _not_known_of(group, error), subject=group)]

    answers = await query_many(asked, of, trio.CapacityLimiter(QUERIES_AT_ONCE))
    checks = [check for each in answers.values() for check in each]
    if left:
        values = {"number": left, "most": MAX_MEMBERS}
        text = Text("of {number} groups were not asked what they read: at most {most} members are", **values)
        checks.append(HealthCheck("members", WARN, text))
    return checks


async def _check_dead_letters(servers: AdminServers, since: datetime) -> list[HealthCheck]:
    queues = QueueOffsets(servers.session, TOOLS_GROUP, timeout=servers.timeout, namespace=servers.namespace)
    since_ms = round(since.timestamp() * 1000)

    async def new_letters(topic: str) -> int | RocketMQError:
        try:
            there = (await queues.current_queues([topic]))[topic] or ()
            ends, begins = await queues.max_offsets(there), await queues.offsets_at(dict.fromkeys(there, since_ms))
        except RocketMQError as error:
            return error
        return sum(max(0, ends[queue] - begins[queue]) for queue in there)

    try:
        topics = [name for name in await Topics(servers).list() if is_dead_letter_topic(name)]
    except RocketMQError as error:
        return [HealthCheck("letters", WARN, _not_known(error))]
    counted = await query_many(topics[:MAX_LETTER_TOPICS], new_letters, trio.CapacityLimiter(QUERIES_AT_ONCE))
    checks = []
    for topic, number in counted.items():
        group = topic.removeprefix(DLQ_PREFIX)
        if isinstance(number, RocketMQError):
            checks.append(HealthCheck("letters", WARN, _not_known_of(group, number), subject=group))
        elif number:
            text = Text("group {group} has 1 dead letter of the last 24 hours", group=group)
            if number > 1:
                values = {"group": group, "number": number}
                text = Text("group {group} has {number:,} dead letters of the last 24 hours", **values)
            advice = Text("mend what refuses them, then send them again")
            checks.append(HealthCheck("letters", WARN, text, advice, group))
    if len(topics) > MAX_LETTER_TOPICS:
        values = {"number": len(topics) - MAX_LETTER_TOPICS, "most": MAX_LETTER_TOPICS}
        text = Text("of {number} groups were not counted: at most {most} are", **values)
        checks.append(HealthCheck("letters", WARN, text))
    return checks


async def _check_named_lags(servers: AdminServers, bounds: HealthBounds) -> list[HealthCheck]:
    lags: dict[str, int] = {}
    beyond: dict[str, int] = {}
    checks = []
    try:
        for group in bounds.lag_of:
            progress = await Groups(servers).progress(group)
            if progress.lag is not None:
                lags[group] = progress.lag
                beyond[group] = sum(row.lag < 0 for row in progress.queues)
            else:
                absent = Text("group {group} has no offsets, so its lag is not known", group=group)
                advice = Text("look at its name; it has some when a member consumes")
                checks.append(HealthCheck("lag", FAIL, absent, advice, group))
            checks += [
                HealthCheck("lag", WARN, f"{group}: {error}", subject=group) for error in progress.failures.values()
            ]
    except ResponseError as error:
        checks.append(HealthCheck("lag", FAIL, _not_known(error)))
    return [*checks, *check_lags(lags, beyond, bounds.max_lag)]


def _not_known(error: RocketMQError) -> Text:
    return Text("not known: {error}", error=str(error))


def _not_known_of(group: str, error: RocketMQError) -> Text:
    return Text("of group {group} are not known: {error}", group=group, error=str(error))
