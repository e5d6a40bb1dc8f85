"""Administrators' requests about lite topics (200074 to 200079), with the answers of 5.5.0.

The groups of a parent topic are those whose attribute `lite.bind.topic` names it. Source:
broker/processor/LiteManagerProcessor.java, broker/metrics/LiteConsumerLagCalculator.java, 5.5.0.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyrmq_core.errors import StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.names import LMQ_PREFIX, is_lite_queue, owner_topic
from pyrmq_core.protocol.requests.figures.lite_topics import (
    BrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteClientInfo,
    LiteGroupInfo,
    LiteLag,
    LiteSubscriber,
    LiteTopicInfo,
    ParentTopicInfo,
    TriggerLiteDispatch,
)
from pyrmq_core.protocol.requests.figures.topic_stats import TopicOffset
from pyrmq_core.protocol.requests.groups.consume_stats import OffsetWrapper
from pyrmq_core.protocol.requests.pop.lite import BIND_TOPIC
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.in_turns import BoundedWork, InTurns
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.long_answers import in_turn
from pyrmq_core.servers.broker.processors.name_rules import checked, client_fault, group_fault, topic_fault
from pyrmq_core.servers.broker.processors.pops.lite import (
    LiteGroupRequests,
    is_assigned,
    is_lite_topic,
    write_queues,
)
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store_services.queue_removal import EXPIRATION
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupConfig, GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable

MOST_LAGS: Final = 10_000
MOST_NAMES: Final = 10_000


@dataclass(frozen=True, slots=True)
class LiteTopicRequests:
    settings: LiveSettings
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    store: MessageStore
    registration: BrokerRegistration
    lite: LiteGroupRequests
    long_work: BoundedWork

    def handlers(self) -> Handlers:
        names = {"topic": topic_fault, "parentTopic": topic_fault, "group": group_fault, "clientId": client_fault}
        handlers: Handlers = {
            RequestCode.GET_BROKER_LITE_INFO: self.broker,
            RequestCode.GET_PARENT_TOPIC_INFO: self.parent,
            RequestCode.GET_LITE_TOPIC_INFO: self.topic,
            RequestCode.GET_LITE_CLIENT_INFO: self.client,
            RequestCode.GET_LITE_GROUP_INFO: self.group,
            RequestCode.TRIGGER_LITE_DISPATCH: self.dispatch,
        }
        return {code: checked(handler, **names) for code, handler in handlers.items()}

    def broker(self, _request: Command, _: Peer) -> Command:
        parents = {topic.topic: _expiration(topic) for topic in self.topics if is_lite_topic(topic)}
        bound: dict[str, list[str]] = {}
        for group, topic in self._bound():
            bound.setdefault(topic, []).append(group)
        queues = self.store.queues
        return BrokerLiteInfo(
            parents,
            {topic: tuple(groups) for topic, groups in bound.items()},
            "default",
            self.settings.config.max_lmq_consume_queue_num,
            queues.lite_queues,
            queues=len({topic for topic, _ in queues.by_key}),
            subscriptions=self.lite.clients.subscriptions,
            ordered=self.lite.pops.reviver.ordered.lite_rows,
            offsets=len(self.offsets),
            clients_with_events=len(self.lite.clients),
        ).to_command()

    def parent(self, request: Command, _: Peer) -> Command:
        topic = GetParentTopicInfo.from_command(request).topic
        config = self._parent(topic)
        if isinstance(config, Command):
            return config
        groups = tuple(group for group, bound in self._bound() if bound == topic)
        queues = self.store.queues
        count = sum(is_lite_queue(name) for name, _ in queues.keys_of(topic))
        return ParentTopicInfo(topic, _expiration(config), groups or None, queues.lite_queues, count).to_command()

    async def topic(self, request: Command, _: Peer) -> Command:
        header = GetLiteTopicInfo.from_command(request)
        parent = self._parent(header.parent_topic)
        if isinstance(parent, Command):
            return parent
        key, config = _key(header.parent_topic, header.lite_topic), self.settings.config
        low, end = self.store.reader.bounds(key)
        stored = TopicOffset(low if end else 0, end, self._stored_ms(key, end - 1) if end else 0)
        brokers = await write_queues(config, self.registration, parent.topic)
        is_here = is_assigned(brokers, header.lite_topic, config.broker_name)
        clients = self.lite.clients.subscribers(key[0])
        rows = dict.fromkeys(LiteSubscriber("*" if each.has_all else each.client_id, each.group) for each in clients)
        return LiteTopicInfo(parent.topic, header.lite_topic, tuple(rows), stored, is_here).to_command()

    def client(self, request: Command, _: Peer) -> Command:
        header = GetLiteClientInfo.from_command(request)
        config = self._parent(header.parent_topic)
        if isinstance(config, Command):
            return config
        if (group := self._group(header.group)) is None:
            return _no_group(header.group)
        if group["attributes"].get(BIND_TOPIC) != header.parent_topic:
            text = f"Subscription [{header.group}]-[{header.parent_topic}] not match."
            return refusal(ResponseCode.INVALID_PARAMETER, text)
        if (client := self.lite.clients.get(header.client_id)) is None:
            return LiteClientInfo(header.parent_topic, header.group, header.client_id, -1, 0, -1).to_command()
        names = (*client.queues, *([f"{client.topic}@{client.group}"] if client.has_all else ()))
        return LiteClientInfo(
            header.parent_topic,
            header.group,
            header.client_id,
            client.accessed_ms,
            0,
            len(names),
            names[: max(0, min(header.max_count, MOST_NAMES))],
        ).to_command()

    def group(self, request: Command, _: Peer) -> Answer:
        header = GetLiteGroupInfo.from_command(request)
        topic = self._bound_topic(header.group)
        if isinstance(topic, Command):
            return topic
        if header.lite_topic:
            return self._lag_in(header.group, topic, header.lite_topic).to_command()
        if not 1 <= header.top <= MOST_LAGS:
            return refusal(ResponseCode.SYSTEM_ERROR, f"topK is {header.top}; 1 to {MOST_LAGS} are possible")
        return in_turn(self.long_work, partial(self._all_lags, header, topic))

    async def dispatch(self, request: Command, _: Peer) -> Command:
        header = TriggerLiteDispatch.from_command(request)
        if isinstance(refused := self._bound_topic(header.group), Command):
            return refused
        async for client in InTurns(self.lite.clients.of_group(header.group)):
            if header.client_id in (None, "", client.client_id):
                await self.lite.mark_waiting(client)
        return success()

    async def _all_lags(self, header: GetLiteGroupInfo, topic: str) -> Command:
        lags = [row async for row in InTurns(self._lags(header.group, topic)) if row[0] > 0]
        rows = (
            LiteLag(key[0].rpartition("$")[2], lag, self._stored_ms(key, offset))
            for lag, key, offset in heapq.nlargest(header.top, lags)
        )
        most = tuple([row async for row in InTurns(rows)])
        total = sum(lag for lag, _, _ in lags)
        return LiteGroupInfo(header.group, topic, None, total, -1, None, most, ()).to_command()

    def _lag_in(self, group: str, topic: str, lite_topic: str) -> LiteGroupInfo:
        key = _key(topic, lite_topic)
        end, offset = self.store.reader.bounds(key)[1], self.offsets.committed(group, *key)
        if not end or offset is None:
            return LiteGroupInfo(group, topic, lite_topic, 0 if end else -1)
        last_ms = self._stored_ms(key, offset - 1) if offset else 0
        wrapper = OffsetWrapper(end, offset, 0, last_ms)
        return LiteGroupInfo(group, topic, lite_topic, end - offset, self._stored_ms(key, offset), wrapper)

    def _lags(self, group: str, topic: str) -> Iterator[tuple[int, QueueKey, int]]:
        """Yields the group's lag, the queue and the committed offset for each topic in which the group has offsets.

        For topics that are no lite topics of `topic`, it yields zeros, only to let other tasks run.
        """
        for name in self.offsets.topics_of(group):
            key, is_own = (name, 0), is_lite_queue(name) and owner_topic(name) == topic
            offset = self.offsets.committed(group, *key) if is_own else None
            yield (0, key, 0) if offset is None else (self.store.reader.bounds(key)[1] - offset, key, offset)

    def _parent(self, topic: str) -> TopicConfig | Command:
        config = self.topics.get(topic)
        if config is None:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{topic}] not exist.")
        if not is_lite_topic(config):
            return refusal(ResponseCode.INVALID_PARAMETER, f"Topic [{topic}] type not match.")
        return config

    def _group(self, group: str) -> GroupConfig | None:
        return self.groups.find(group, clock.now_ms())

    def _bound_topic(self, group: str) -> str | Command:
        config = self._group(group)
        if config is None:
            return _no_group(group)
        not_lite = refusal(ResponseCode.INVALID_PARAMETER, f"Group [{group}] is not a LITE group.")
        return config["attributes"].get(BIND_TOPIC) or not_lite

    def _bound(self) -> Iterator[tuple[str, str]]:
        for name in self.groups.names():
            config = self.groups.known(name)
            if config is not None and (topic := config["attributes"].get(BIND_TOPIC)):
                yield name, topic

    def _stored_ms(self, key: QueueKey, offset: int) -> int:
        try:
            stored = self.store.reader.store_time(key, offset)
        except StoreError:
            return -1
        return -1 if stored is None else stored


def _expiration(topic: TopicConfig) -> int:
    return int(topic.attributes.get(EXPIRATION, -1))


def _key(topic: str, lite_topic: str) -> QueueKey:
    return f"{LMQ_PREFIX}{topic}${lite_topic}", 0


def _no_group(group: str) -> Command:
    return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{group}] not exist.")
