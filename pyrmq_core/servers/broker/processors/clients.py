"""Requests about clients and their groups, from clients and from administrators.

These are heartbeats (34), leaving a group (35), members of groups (38, 203, 204, 300), checks of filter expressions
(46), and locks of queues (41, 42). Each heartbeat must list all groups and subscriptions. Java's clients leave out the
subscriptions (version 2) only after an answer that these are unchanged, and this broker never gives that answer.
Source: broker/processor/ClientManageProcessor.java, ConsumerManageProcessor.java (5.4.0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import trio

from pyrmq_core.errors import BodyError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.names import RETRY_PREFIX
from pyrmq_core.protocol.requests.broker.consumer_list import ConsumerList
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, HeartBeatAnswer, UnregisterClient
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues, UnlockQueues
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.clients.queue_locks import QueueLocks
from pyrmq_core.servers.broker.member_changes import MemberChanges
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.name_rules import checked, client_fault, group_fault, if_any, topic_fault
from pyrmq_core.servers.broker.processors.pulls.pull_filters import filter_of_expression
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import READ_WRITE, TopicTable
from pyrmq_core.servers.broker.topic_announcer import TopicAnnouncer

# How many groups of a heartbeat are processed before other tasks run.
GROUPS_AT_ONCE: Final = 25

# The most bytes of a request for locks. Java's clients list all queues that they read at the broker
# (RebalanceImpl.lockAll).
MAX_LOCKS_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class HeartbeatRequests:
    """The handlers of heartbeats, by which clients register for their groups, and of requests to leave a group."""

    settings: LiveSettings
    clients: ClientTable
    groups: GroupTable
    filters: ConsumerFilters
    topics: TopicTable
    announcer: TopicAnnouncer
    changes: MemberChanges

    def handlers(self) -> Handlers:
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: checked(
                self.unregister_client,
                clientID=client_fault,
                producerGroup=if_any(group_fault),
                consumerGroup=if_any(group_fault),
            ),
        }

    def heart_beat(self, request: Command, peer: Peer) -> Answer:
        """Registers the connection for its groups, and creates the retry topics of consumer groups.

        As in RocketMQ, groups that may not be created are skipped, and so are topics and groups with invalid names.
        """
        beat = self._read_heart_beat(request)
        if isinstance(beat, Command):
            return beat
        served = self.clients.groups_with(peer, beat)
        if served > self.settings.config.max_groups_per_connection:
            remark = f"the connection would serve {served} groups, and maxGroupsPerConnection is "
            return refusal(ResponseCode.INVALID_PARAMETER, f"{remark}{self.settings.config.max_groups_per_connection}")
        if len(beat.consumers) > GROUPS_AT_ONCE:
            return self._take_in_turns(beat, request, peer)
        topics = self._take(beat, request, peer)
        return self._after_topics(topics, _taken(beat)) if topics else _taken(beat)

    def _read_heart_beat(self, request: Command) -> HeartBeat | Command:
        config = self.settings.config
        if len(request.body) > config.max_heartbeat_bytes:
            remark = (
                f"the heartbeat has {len(request.body)} bytes, and maxHeartbeatBytes is {config.max_heartbeat_bytes}"
            )
            return refusal(ResponseCode.INVALID_PARAMETER, remark)
        members = load_object(request.body, "heartbeat")
        lists = [data.get("subscriptionDataSet") for data in _objects(members.get("consumerDataSet"))]
        subscriptions = sum(len(subscribed) for subscribed in lists if isinstance(subscribed, list))
        if subscriptions > config.max_subscriptions_per_heartbeat:
            remark = f"the heartbeat has {subscriptions} subscriptions, and maxSubscriptionsPerHeartbeat is "
            return refusal(ResponseCode.INVALID_PARAMETER, f"{remark}{config.max_subscriptions_per_heartbeat}")
        beat = HeartBeat.from_members(members)
        if fault := client_fault(beat.client_id):
            return refusal(ResponseCode.INVALID_PARAMETER, fault)
        return replace(
            beat,
            producer_groups=tuple(group for group in beat.producer_groups if not group_fault(group)),
            consumers=tuple(_without_faults(data) for data in beat.consumers if not group_fault(data.group_name)),
        )

    async def _take_in_turns(self, beat: HeartBeat, request: Command, peer: Peer) -> Command:
        topics: list[TopicConfig] = []
        for start in range(0, len(beat.consumers), GROUPS_AT_ONCE):
            consumers = beat.consumers[start : start + GROUPS_AT_ONCE]
            part = replace(beat, consumers=consumers, producer_groups=() if start else beat.producer_groups)
            topics += self._take(part, request, peer)
            await trio.lowlevel.checkpoint()
        return await self._after_topics(topics, _taken(beat))

    def _take(self, beat: HeartBeat, request: Command, peer: Peer) -> list[TopicConfig]:
        now_ms = clock.now_ms()
        accepted: list[ConsumerData] = []
        topics: list[TopicConfig] = []
        for data in beat.consumers:
            group = self.groups.find(data.group_name, now_ms)
            if group is None:
                continue
            accepted.append(data)
            name = RETRY_PREFIX + data.group_name
            if name not in self.topics and not topic_fault(name):
                queues = group["retryQueueNums"]
                topics.append(TopicConfig(name, queues, queues, READ_WRITE))
        changed = self.clients.heartbeat(beat, accepted, peer, request.language, request.version, clock.running_ms())
        for data in accepted:
            self.filters.register(data.group_name, data.subscriptions, now_ms)
        self.changes.note(changed)
        return topics

    async def _after_topics(self, topics: list[TopicConfig], answer: Command) -> Command:
        if topics:
            await self.announcer.announce(*topics)
        return answer

    def unregister_client(self, request: Command, peer: Peer) -> Command:
        leaving = UnregisterClient.from_command(request)
        changed = self.clients.leave(peer, leaving.producer_group, leaving.consumer_group)
        self.changes.note(changed)
        return success()


@dataclass(frozen=True, slots=True)
class MemberRequests:
    """The handlers of requests about members of groups, checks of filter expressions, and locks of queues."""

    settings: LiveSettings
    clients: ClientTable
    offsets: GroupOffsets
    locks: QueueLocks

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: checked(self.consumer_list, consumerGroup=group_fault),
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: checked(self.consumer_connections, consumerGroup=group_fault),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: checked(self.producer_connections, producerGroup=group_fault),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: checked(self.groups_of_topic, topic=topic_fault),
            RequestCode.LOCK_BATCH_MQ: self.lock_queues,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock_queues,
        }

    def consumer_list(self, request: Command, _: Peer) -> Command:
        group = request.ext.get("consumerGroup", "")
        members = self.clients.consumers.get(group)
        if members is None:
            return refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return ConsumerList(tuple(members.client_ids)).to_command()

    def check_client_config(self, request: Command, _: Peer) -> Command:
        """Returns success if this broker can evaluate the subscription's filter expression, otherwise a refusal."""
        members = load_object(request.body, "client configuration")
        subscription: Any = members.get("subscriptionData")
        if subscription is None:
            return success()
        if not isinstance(subscription, dict):
            raise BodyError("client configuration: subscriptionData is not an object")
        parsed = filter_of_expression(
            self.settings.config, subscription.get("subString"), subscription.get("expressionType")
        )
        return parsed if isinstance(parsed, Command) else success()

    def consumer_connections(self, request: Command, _: Peer) -> Command:
        name = request.ext.get("consumerGroup", "")
        group = self.clients.consumers.get(name)
        if group is None:
            return refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        return success(
            body=dumps(
                {
                    "connectionSet": connections_of(group.members),
                    "consumeFromWhere": group.consume_from_where,
                    "consumeType": group.consume_type,
                    "messageModel": group.message_model,
                    "subscriptionTable": {topic: data.to_members() for topic, data in group.subscriptions.items()},
                }
            )
        )

    def producer_connections(self, request: Command, _: Peer) -> Command:
        name = request.ext.get("producerGroup", "")
        members = self.clients.producers.get(name)
        if members is None:
            return refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return success(body=dumps({"connectionSet": connections_of(members)}))

    def groups_of_topic(self, request: Command, _: Peer) -> Command:
        topic = request.ext.get("topic", "")
        online = [name for name, group in self.clients.consumers.items() if topic in group.subscriptions]
        return success(body=dumps({"groupList": sorted({*online, *self.offsets.groups_of(topic)})}))

    def lock_queues(self, request: Command, _: Peer) -> Command:
        lock = _read_locks(request, LockQueues)
        if isinstance(lock, Command):
            return lock
        locked = self.locks.take(lock.consumer_group, lock.client_id, lock.queues, clock.running_ms())
        return LockedQueues(tuple(locked)).to_command()

    def unlock_queues(self, request: Command, _: Peer) -> Command:
        unlock = _read_locks(request, UnlockQueues)
        if isinstance(unlock, Command):
            return unlock
        self.locks.release(unlock.consumer_group, unlock.client_id, unlock.queues)
        return success()


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _without_faults(data: ConsumerData) -> ConsumerData:
    if any(topic_fault(subscription.topic) for subscription in data.subscriptions):
        valid = tuple(filtered for filtered in data.subscriptions if not topic_fault(filtered.topic))
        return replace(data, subscriptions=valid)
    return data


def _taken(beat: HeartBeat) -> Command:
    return HeartBeatAnswer(supports_v2=True, subscription_changed=bool(beat.consumers)).to_command()


def connections_of(members: Any) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": peer.address,
            "clientId": client.client_id,
            "language": client.language,
            "version": client.version,
        }
        for peer, client in members.items()
    ]


def _read_locks(request: Command, form: type[LockQueues]) -> LockQueues | Command:
    if len(request.body) > MAX_LOCKS_BYTES:
        remark = f"the body has {len(request.body)} bytes; {MAX_LOCKS_BYTES} at most name the queues of a topic"
        return refusal(ResponseCode.INVALID_PARAMETER, remark)
    decoded = form.from_command(request)
    fault = group_fault(decoded.consumer_group) or client_fault(decoded.client_id)
    if not fault and len(decoded.queues) > MAX_QUEUES_PER_TOPIC:
        fault = f"{len(decoded.queues)} queues are named; {MAX_QUEUES_PER_TOPIC} at most in one request"
    for queue in decoded.queues if not fault else ():
        fault = topic_fault(queue.topic) or client_fault(queue.broker_name)
        if fault:
            break
    return refusal(ResponseCode.INVALID_PARAMETER, fault) if fault else decoded
