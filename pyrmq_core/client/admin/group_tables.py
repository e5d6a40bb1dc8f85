"""Reads the settings, members and offsets of consumer groups from brokers, and joins the brokers' answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import trio

from pyrmq_core.client.admin.servers import AdminServers, Server
from pyrmq_core.client.admin.values import GroupDescription, GroupMember, GroupSummary, QueueProgress
from pyrmq_core.client.query_many import query_many
from pyrmq_core.errors import ResponseError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.versions import version_name
from pyrmq_core.protocol.messages.namespaces import is_reachable, without_namespace
from pyrmq_core.protocol.requests.broker.group_admin import GetBrokerConsumeStats, QueryConsumeTimeSpan
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.groups.connections import ConsumerConnections, GetConsumerConnections
from pyrmq_core.protocol.requests.groups.consume_stats import (
    ConsumeStats,
    ConsumeStatsOfGroups,
    ConsumeTimeSpans,
    GetConsumeStats,
    OffsetWrapper,
    QueueTimeSpan,
)
from pyrmq_core.protocol.requests.groups.subscription_groups import (
    AllSubscriptionGroups,
    GetAllSubscriptionGroups,
    SubscriptionGroupConfig,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# A greater age means that the broker did not find a store time and counted from 1970.
UNKNOWN_AGE: Final = timedelta(days=365 * 30)
NO_MEMBERS: Final = ConsumerConnections(())


@dataclass(frozen=True, slots=True)
class BrokerGroups:
    """The groups of one broker: their settings, offsets and members, by the group's name with its namespace."""

    configs: Mapping[str, SubscriptionGroupConfig]
    stats: Mapping[str, tuple[ConsumeStats, ...]]
    connections: Mapping[str, ConsumerConnections]


@dataclass(frozen=True, slots=True)
class BrokerProgress:
    """The offsets of one group at one broker. `version` is the broker's release, a number in common/MQVersion.java.

    `spans` has, by queue, the store times from which the age of unconsumed messages is computed, for topics with lag.
    It is empty if they were not requested.
    """

    version: int
    stats: ConsumeStats
    spans: Mapping[MessageQueue, QueueTimeSpan]


async def configs_of(servers: AdminServers, server: Server) -> Mapping[str, SubscriptionGroupConfig]:
    answer = await servers.ask(server, GetAllSubscriptionGroups().to_command())
    return AllSubscriptionGroups.from_command(answer).groups


async def connections_of(servers: AdminServers, server: Server, group: str) -> ConsumerConnections:
    """Returns the members of a group at one broker, or none for an unknown group. `group` includes the namespace."""
    try:
        answer = await servers.ask(server, GetConsumerConnections(group).to_command(), f"group {group}")
    except ResponseError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return NO_MEMBERS
        raise
    return ConsumerConnections.from_command(answer)


async def groups_of(servers: AdminServers, server: Server, limit: trio.CapacityLimiter) -> BrokerGroups:
    """Returns the settings, offsets and members of all groups of one broker.

    `limit` is the limit of concurrent queries for members at all brokers together. Without it, the last of many queries
    would time out.
    """
    configs = await configs_of(servers, server)
    answer = await servers.ask(server, GetBrokerConsumeStats().to_command())
    stats = ConsumeStatsOfGroups.from_command(answer).groups
    connections = await query_many(configs, lambda group: connections_of(servers, server, group), limit)
    return BrokerGroups(configs, stats, connections)


async def progress_of(
    servers: AdminServers, server: Server, group: str, topic: str | None, *, times: bool
) -> BrokerProgress:
    """Returns a group's offsets at one broker, for one topic or all.

    With `times`, the result also has the ages of waiting messages.
    """
    answer = await servers.ask(server, GetConsumeStats(group, topic).to_command(), f"group {group}")
    stats = ConsumeStats.from_command(answer)
    lagging = {queue.topic for queue, row in stats.offsets.items() if row.broker_offset > row.consumer_offset}

    async def spans(name: str) -> tuple[QueueTimeSpan, ...]:
        query = QueryConsumeTimeSpan(name, group).to_command()
        try:
            return ConsumeTimeSpans.from_command(await servers.ask(server, query, f"topic {name}")).queues
        except ResponseError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return ()
            raise

    answers = await query_many(lagging if times else (), spans)
    return BrokerProgress(answer.version, stats, {span.queue: span for queues in answers.values() for span in queues})


def summaries(answers: Mapping[str, BrokerGroups], namespace: str | None) -> tuple[GroupSummary, ...]:
    at_brokers: defaultdict[str, dict[str, BrokerGroups]] = defaultdict(dict)
    for name, answer in answers.items():
        for group in answer.configs.keys() | answer.connections.keys() | answer.stats.keys():
            at_brokers[group][name] = answer
    names = {group for answer in answers.values() for group in answer.configs if is_reachable(group, namespace)}
    return tuple(_summary(group, at_brokers[group], namespace) for group in sorted(names))


def _summary(group: str, answers: Mapping[str, BrokerGroups], namespace: str | None) -> GroupSummary:
    connections = [answer.connections.get(group, NO_MEMBERS) for answer in answers.values()]
    clients = members_of(connections)
    stats = [part for answer in answers.values() for part in answer.stats.get(group, ())]
    offsets = [(queue, row) for part in stats for queue, row in part.offsets.items()]
    lags = Counter[str]()
    for queue, row in offsets:
        lags[without_namespace(queue.topic, namespace)] += max(0, row.broker_offset - row.consumer_offset)
    return GroupSummary(
        group=without_namespace(group, namespace),
        members=len(clients),
        consume_type=first_known(connection.consume_type for connection in connections),
        message_model=first_known(connection.message_model for connection in connections),
        lag=lags.total(),
        topics=tuple(sorted(lags)),
        brokers=tuple(sorted(name for name, answer in answers.items() if group in answer.configs)),
        clients=clients,
        queues_beyond_end=sum(row.consumer_offset > row.broker_offset for _, row in offsets),
        lags=dict(lags),
        consume_tps=sum(part.consume_tps for part in stats),
    )


def members_of(answers: Iterable[ConsumerConnections]) -> tuple[GroupMember, ...]:
    members: dict[str, GroupMember] = {}
    for answer in answers:
        for connection in answer.connections:
            member = GroupMember(
                connection.client_id, connection.address, connection.language, version_name(connection.version)
            )
            members.setdefault(connection.client_id, member)
    return tuple(members[client_id] for client_id in sorted(members))


def subscriptions_of(answers: Iterable[ConsumerConnections], namespace: str | None) -> tuple[SubscriptionData, ...]:
    newest: dict[str, SubscriptionData] = {}
    for answer in answers:
        for topic, data in answer.subscriptions.items():
            if topic not in newest or data.sub_version > newest[topic].sub_version:
                newest[topic] = data
    return tuple(
        replace(newest[topic], topic=without_namespace(newest[topic].topic, namespace)) for topic in sorted(newest)
    )


def holders_of(description: object) -> dict[MessageQueue, str]:
    """Returns the client id of the member that reads each queue, from a `GroupDescription`.

    For any other object the result is empty.
    """
    members = description.members if isinstance(description, GroupDescription) else ()
    return {queue: member.client_id for member in members for queue in member.queues}


def queue_progress(
    answer: BrokerProgress, holders: Mapping[MessageQueue, str], namespace: str | None, now: datetime
) -> list[QueueProgress]:
    return [
        QueueProgress(
            queue=(own := tenant_queue(queue, namespace)),
            broker_offset=row.broker_offset,
            consumer_offset=row.consumer_offset,
            pull_offset=row.pull_offset,
            last_consumed=EPOCH + timedelta(milliseconds=row.last_timestamp_ms) if row.last_timestamp_ms > 0 else None,
            waiting_since=_waiting_since(row, answer.spans.get(queue), now),
            client_id=holders.get(own),
        )
        for queue, row in answer.stats.offsets.items()
    ]


def _waiting_since(row: OffsetWrapper, span: QueueTimeSpan | None, now: datetime) -> datetime | None:
    """Returns the store time of the oldest unconsumed message, or None if no message waits or the time is unknown."""
    if span is None or row.broker_offset <= row.consumer_offset:
        return None
    age = timedelta(milliseconds=span.delay_ms)
    if timedelta(0) <= age < UNKNOWN_AGE and span.delay_ms:
        return now - age
    return EPOCH + timedelta(milliseconds=span.min_timestamp_ms) if span.min_timestamp_ms > 0 else None


def tenant_queue(queue: MessageQueue, namespace: str | None) -> MessageQueue:
    return replace(queue, topic=without_namespace(queue.topic, namespace)) if namespace else queue


def first_known(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value is not None), None)
