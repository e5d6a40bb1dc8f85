"""The state of a stored message in each group: whether it was consumed, its retries, and its dead letters.

Source: tools/admin/DefaultMQAdminExtImpl.java (messageTrackDetail, consumed), tools/admin/api/TrackType.java, 5.4.0.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from pyrmq_core.client.admin.group_tables import connections_of, progress_of
from pyrmq_core.client.admin.message_queries import MessageList, MessageQueries
from pyrmq_core.client.admin.servers import AdminServers, Server
from pyrmq_core.client.query_many import query_many
from pyrmq_core.errors import NoRoute, RocketMQError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageExt
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, RETRY_PREFIX, is_dead_letter_topic
from pyrmq_core.protocol.messages.namespaces import is_reachable, without_namespace
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.figures.topic_stats import QueryTopicGroups, TopicGroups
from pyrmq_core.protocol.requests.groups.connections import ConsumerConnections

CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"
BROADCASTING: Final = "BROADCASTING"
TAG: Final = "TAG"
# The most bytes of a body that are kept of a copy in a retry or dead-letter topic.
COPY_BODY_BYTES: Final = 1024


class TrackType(enum.Enum):
    """The state of a message in one group, by Java's names, with DEAD_LETTER for a message in the dead-letter topic."""

    DEAD_LETTER = "DEAD_LETTER"
    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """The state of one message in one group.

    `consumer_offset` is the group's offset in the message's queue, or None. `retries` are the message's copies in the
    group's retry topic, `dead_letters` its copies in the dead-letter topic. `error` is the reason of UNKNOWN, or the
    reason why copies may be missing.
    """

    group: str
    track_type: TrackType
    consumer_offset: int | None = None
    retries: tuple[MessageExt, ...] = ()
    dead_letters: tuple[MessageExt, ...] = ()
    error: RocketMQError | None = None


async def tracks_of(servers: AdminServers, queries: MessageQueries, message: MessageExt) -> tuple[MessageTrack, ...]:
    brokers = await servers.brokers()
    topic = servers.on_wire(message.topic)
    if is_dead_letter_topic(message.topic):
        group = message.topic.removeprefix(DLQ_PREFIX)
        return (MessageTrack(group, TrackType.DEAD_LETTER, dead_letters=(message,)),)

    async def groups_at(server: Server) -> tuple[str, ...]:
        answer = await servers.ask(server, QueryTopicGroups(topic).to_command(), f"topic {message.topic}")
        return TopicGroups.from_command(answer).groups

    gathered = await servers.gather(brokers.values(), groups_at)
    every = {group for names in gathered.answers.values() for group in names}
    groups = sorted(group for group in every if is_reachable(group, servers.namespace))
    tracks = await query_many(groups, lambda group: _track(servers, queries, brokers, message, group))
    return tuple(tracks[group] for group in groups)


async def _track(
    servers: AdminServers, queries: MessageQueries, brokers: Mapping[str, Server], message: MessageExt, group: str
) -> MessageTrack:
    own = without_namespace(group, servers.namespace)
    try:
        gathered = await servers.gather(brokers.values(), lambda server: connections_of(servers, server, group))
        online = [answer for answer in gathered.answers.values() if answer.connections]
        offset = await _offset(servers, brokers, message, group)
        retries = await _copies(queries, f"{RETRY_PREFIX}{own}", message.msg_id)
        letters = await _copies(queries, f"{DLQ_PREFIX}{own}", message.msg_id)
        kind = _track_type(message, servers.on_wire(message.topic), online, offset)
        if (
            latest := max((*retries.messages, *letters.messages), key=attrgetter("store_timestamp_ms"), default=None)
        ) is not None:
            if latest in letters.messages:
                kind = TrackType.DEAD_LETTER
            elif kind is TrackType.CONSUMED:
                reached = await _offset(servers, brokers, replace(latest, topic=f"{RETRY_PREFIX}{own}"), group)
                waits = reached is None or reached <= latest.queue_offset
                kind = TrackType.NOT_CONSUME_YET if waits else kind
        return MessageTrack(
            own,
            kind,
            offset,
            retries.messages,
            letters.messages,
            next(iter({**retries.failures, **letters.failures}.values()), None),
        )
    except RocketMQError as error:
        return MessageTrack(own, TrackType.UNKNOWN, error=error)


async def _offset(servers: AdminServers, brokers: Mapping[str, Server], message: MessageExt, group: str) -> int | None:
    server = brokers.get(message.broker_name)
    if server is None:
        return None
    topic = servers.on_wire(message.topic)
    progress = await progress_of(servers, server, group, topic, times=False)
    return next(
        (row.consumer_offset for queue, row in progress.stats.offsets.items() if queue.queue_id == message.queue_id),
        None,
    )


def _track_type(message: MessageExt, topic: str, online: list[ConsumerConnections], offset: int | None) -> TrackType:
    if not online:
        return TrackType.NOT_ONLINE
    if online[0].message_model == BROADCASTING:
        return TrackType.CONSUME_BROADCASTING
    if online[0].consume_type == CONSUME_ACTIVELY:
        return TrackType.PULL
    if offset is None or offset <= message.queue_offset:
        return TrackType.NOT_CONSUME_YET
    subscription = next(
        (connected.subscriptions[topic] for connected in online if topic in connected.subscriptions), None
    )
    return TrackType.CONSUMED if _passes(message, subscription) else TrackType.CONSUMED_BUT_FILTERED


def _passes(message: MessageExt, subscription: SubscriptionData | None) -> bool:
    if subscription is None or subscription.expression_type != TAG:
        return True
    return TagFilter.parse(subscription.sub_string).matches(message.tags)


async def _copies(queries: MessageQueries, topic: str, unique_key: str) -> MessageList:
    try:
        return await queries.by_unique_key(topic, unique_key, COPY_BODY_BYTES)
    except NoRoute:
        return MessageList((), {})
