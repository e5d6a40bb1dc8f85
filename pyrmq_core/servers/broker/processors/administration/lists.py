"""Requests with lists: topics (18) and groups (225) to create or change, system topics (305), and all producers (328).

A list is checked completely before anything is changed. RocketMQ ignores all topics of a list if one is unchanged. Here
the others are changed. Source: broker/processor/AdminBrokerProcessor.java, broker/client/ProducerManager.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from pyrmq_core.errors import BodyError, InvalidArgument
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.names import SYSTEM_TOPICS
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from pyrmq_core.protocol.routes.topic_config import topic_config_from_members
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.client_table import ClientInfo, ClientTable
from pyrmq_core.servers.broker.in_turns import BoundedWork, InTurns
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, in_turn, separated
from pyrmq_core.servers.broker.processors.name_rules import group_fault, topic_fault
from pyrmq_core.servers.broker.processors.topics_and_groups import announced, changed_topic, saved
from pyrmq_core.servers.broker.tables.attributes import TOPIC_ATTRIBUTES, BadAttribute, listed_changes
from pyrmq_core.servers.broker.tables.subscription_groups import (
    MAX_GROUP_BYTES,
    GroupConfig,
    GroupTable,
    group_settings,
)
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.broker.topic_announcer import TopicAnnouncer

MAX_LISTED: Final = 1000
MAX_LIST_BYTES: Final = 1 << 20
# The most attribute changes of a topic: each attribute may be added and removed. They are read in one step, which would
# stop the loop for 30 ms with 60,000 changes.
MOST_ATTRIBUTES: Final = 2 * len(TOPIC_ATTRIBUTES)

ListedTopic = tuple[UpdateTopic, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class ListRequests:
    topics: TopicTable
    announcer: TopicAnnouncer
    groups: GroupTable
    clients: ClientTable
    long_work: BoundedWork

    def handlers(self) -> Handlers:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_topics,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_groups,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    async def update_topics(self, request: Command, _: Peer) -> Command:
        changed: list[TopicConfig] = []
        answer = await in_turn(self.long_work, partial(self._make_topics, request.body, changed))
        if changed or (answer.code == ResponseCode.SUCCESS and self.topics.file.is_behind):
            outcome = await announced(self.announcer)
            return outcome if answer.code == ResponseCode.SUCCESS else answer
        return answer

    async def _make_topics(self, body: bytes | memoryview, changed: list[TopicConfig]) -> Command:
        listed: list[ListedTopic] = []
        try:
            members = await _read(body, "topicConfigList")
            async for topic in InTurns(listed_topics(members)):
                if isinstance(refused := changed_topic(self.topics, *topic), Command):
                    return refused
                listed.append(topic)
        except InvalidArgument as error:
            return refusal(ResponseCode.INVALID_PARAMETER, str(error))
        refusals: list[Command] = []
        with trio.CancelScope(shield=True):  # the list is finished even if its caller disconnects
            async for topic in InTurns(listed):
                config = changed_topic(
                    self.topics, *topic
                )  # computed again, since another request may have changed the topic
                if isinstance(config, Command):
                    refusals.append(config)
                elif self.topics.put(config, clock.now_ms()):
                    changed.append(config)
        return refusals[0] if refusals else success()

    async def update_groups(self, request: Command, _: Peer) -> Command:
        answer = await in_turn(self.long_work, partial(self._make_groups, request.body))
        outcome = await saved(self.groups.file)
        return outcome if answer.code == ResponseCode.SUCCESS else answer

    async def _make_groups(self, body: bytes | memoryview) -> Command:
        try:
            members = await _read(body, "groupConfigList")
            groups = [group async for group in InTurns(listed_groups(members))]
        except InvalidArgument as error:
            return refusal(ResponseCode.INVALID_PARAMETER, str(error))
        refusals: list[Command] = []
        with trio.CancelScope(shield=True):
            async for group in InTurns(groups):
                try:
                    self.groups.change(group, clock.now_ms())
                except BadAttribute as error:
                    refusals.append(refusal(ResponseCode.SYSTEM_ERROR, f"group {group['groupName']}: {error}"))
                except InvalidArgument as error:
                    refusals.append(refusal(ResponseCode.INVALID_PARAMETER, str(error)))
        return refusals[0] if refusals else success()

    def system_topics(self, _request: Command, _: Peer) -> Command:
        return success(body=dumps({"topicList": sorted(SYSTEM_TOPICS | self.topics.system_names)}))

    def all_producers(self, _request: Command, _: Peer) -> Answer:
        return answer_in_turns(self.long_work, self._producer_groups())

    def _producer_groups(self) -> Iterator[bytes]:
        since_ms = clock.now_ms() - clock.running_ms()  # the system time when the monotonic clock was 0
        yield b'{"data":{'
        for number, group in enumerate(list(self.clients.producers)):
            yield (b"," if number else b"") + dumps(group) + b":["
            members = list(self.clients.producers.get(group, {}).items())  # empty if the producers left meanwhile
            yield from separated(dumps(_producer(peer, client, since_ms)) for peer, client in members)
            yield b"]"
        yield b"}}"


def listed_topics(listed: Iterable[Mapping[str, Any]]) -> Iterator[ListedTopic]:
    """Decodes the topics of request 18. Raises `InvalidArgument` for a wrong name or too many attributes."""
    for members in listed:
        topic = topic_config_from_members({**members, "attributes": {}})
        if fault := topic_fault(topic.topic):
            raise InvalidArgument(fault)
        yield UpdateTopic.of(topic), _attribute_changes(topic.topic, members.get("attributes"))


def _attribute_changes(topic: str, attributes: object) -> Mapping[str, str]:
    if isinstance(attributes, dict) and len(attributes) > MOST_ATTRIBUTES:
        raise InvalidArgument(f"topic {topic} has {len(attributes)} attributes; there are {len(TOPIC_ATTRIBUTES)}")
    return listed_changes(f"topic {topic}", attributes)


def listed_groups(listed: Iterable[Mapping[str, Any]]) -> Iterator[GroupConfig]:
    """Decodes the groups' settings of request 225. Raises `InvalidArgument` for impossible settings."""
    for members in listed:
        name = members.get("groupName")
        if fault := group_fault(name if isinstance(name, str) else ""):
            raise InvalidArgument(fault)
        if len(dumps(members)) > MAX_GROUP_BYTES:
            raise InvalidArgument(
                f"the settings of group {name} take more than the {MAX_GROUP_BYTES} bytes that are kept"
            )
        yield group_settings(members)


async def _read(body: bytes | memoryview, name: str) -> list[Mapping[str, Any]]:
    return await trio.to_thread.run_sync(listed_members, body, name, limiter=trio.CapacityLimiter(1))


def listed_members(body: bytes | memoryview, name: str) -> list[Mapping[str, Any]]:
    """Decodes the list in a body. Raises `InvalidArgument` if it is too long, `BodyError` if it is malformed."""
    if len(body) > MAX_LIST_BYTES:
        raise InvalidArgument(f"the list has more than {MAX_LIST_BYTES} bytes; send it in parts")
    listed = load_object(body, name).get(name)
    if not isinstance(listed, list):
        raise BodyError(f"{name} is not a list of objects")
    if len(listed) > MAX_LISTED:
        raise InvalidArgument(f"the list has more than {MAX_LISTED} members; send it in parts")
    if not all(isinstance(item, dict) for item in listed):
        raise BodyError(f"{name} is not a list of objects")
    return listed


def _producer(peer: Peer, client: ClientInfo, since_ms: int) -> dict[str, Any]:
    return {
        "clientId": client.client_id,
        "language": client.language,
        "lastUpdateTimestamp": client.seen_ms + since_ms,
        "remoteIP": f"/{peer.address}",
        "version": client.version,
    }
