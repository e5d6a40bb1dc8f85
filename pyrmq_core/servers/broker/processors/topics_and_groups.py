"""Administrators' requests about topics and consumer groups.

They create or change (17, 200), list (21, 201), delete (215, 207) and show (351, 352) topics and groups. Source:
broker/processor/AdminBrokerProcessor.java (5.4.0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import trio

from pyrmq_core.errors import HeaderError, InvalidArgument, StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.framing.fields import parse_bool
from pyrmq_core.protocol.java.integers import parse_int
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.names import is_lite_queue, is_system_topic, owner_topic
from pyrmq_core.protocol.requests.broker.topic_admin import (
    DeleteTopic,
    GetTopicConfig,
    TopicConfigFound,
    UpdateTopic,
)
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC, NO_VERSION, DataVersion, topic_config_members
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, object_pieces
from pyrmq_core.servers.broker.processors.name_rules import checked, group_fault, topic_fault
from pyrmq_core.servers.broker.processors.put_message import RequestRefused, make_topic, refused_by_disk
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.store_services.queue_removal import remove_queues
from pyrmq_core.servers.broker.tables.attributes import (
    MESSAGE_TYPE,
    MIXED,
    TOPIC_ATTRIBUTES,
    BadAttribute,
    changed_attributes,
    parsed_changes,
)
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import MAX_GROUP_BYTES, GroupTable
from pyrmq_core.servers.broker.tables.table_file import TableFile
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.broker.topic_announcer import TopicAnnouncer

log = logging.getLogger(__name__)

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
# All four bits of a topic's permission (common/constant/PermName.java).
MAX_PERM: Final = 15
MAX_SYS_FLAG: Final = 2**31 - 1
# The header fields of 5.x and of 4.9 by which a group is deleted with its offsets.
CLEAN_OFFSET: Final = ("cleanOffset", "removeOffset")


@dataclass(frozen=True, slots=True)
class TopicRequests:
    topics: TopicTable
    announcer: TopicAnnouncer
    store: MessageStore
    flusher: Flusher
    offsets: GroupOffsets
    clients: ClientTable
    figures: BrokerFigures
    long_work: BoundedWork
    nursery: trio.Nursery

    def handlers(self) -> Handlers:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: checked(self.update_topic, topic=topic_fault),
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: checked(self.delete_topic, topic=topic_fault),
            RequestCode.GET_TOPIC_CONFIG: checked(self.get_topic, topic=topic_fault),
        }

    def update_topic(self, request: Command, _: Peer) -> Answer:
        """Creates or changes a topic. Answers after the topics' file is written and the NameServers are informed."""
        changed = changed_topic(self.topics, UpdateTopic.from_command(request))
        if isinstance(changed, Command):
            return changed
        if changed == self.topics.get(changed.topic):
            return announced(self.announcer) if self.topics.file.is_behind else success()
        return announced(self.announcer, changed)

    def delete_topic(self, request: Command, _: Peer) -> Answer:
        """Deletes a topic, its queues and its committed offsets. The administrator's tool informs NameServers (216).

        The queues are deleted first, so that a message that arrives meanwhile belongs to a new topic.
        """
        header = DeleteTopic.from_command(request)
        if _is_system(self.topics, header.topic):
            return refusal(ResponseCode.INVALID_PARAMETER, f"The topic[{header.topic}] is conflict with system topic.")
        if header.topic not in self.topics and not self.store.reader.queues_of(header.topic):
            return success()
        return self._deleted(header.topic)

    async def _deleted(self, topic: str) -> Command:
        def is_lite(key: QueueKey) -> bool:
            return is_lite_queue(key[0]) and owner_topic(key[0]) == topic

        has_members = self.clients.has_members
        try:
            with refused_by_disk():
                await remove_queues(self.store, self.flusher, self.offsets, has_members, is_lite)
                await self.flusher.flush_queues()  # syncs most in a thread, as the deletion syncs on the loop
                lite_queues = {name for name, _ in self.store.queues.keys_of(topic)} - {topic}
                frees = self.store.delete_topic(topic)
        except RequestRefused as refused:
            return refusal(refused.code, str(refused))
        self.topics.remove(topic, clock.now_ms())
        readers = self.offsets.readers_of(topic)
        self.offsets.forget_topic(topic, [group for group in readers if has_members(group)])
        self.offsets.forget_lite_queues(lite_queues, has_members)
        self.nursery.start_soon(_free, topic, frees)
        self.figures.forget_topic(topic)
        return await saved(self.topics.file)

    def get_topic(self, request: Command, _: Peer) -> Command:
        header = GetTopicConfig.from_command(request)
        topic = self.topics.get(header.topic)
        if topic is None:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        return TopicConfigFound(topic).to_command()

    def all_topics(self, request: Command, _: Peer) -> Answer:
        """Returns all topics, or the page of them that a slave requests."""
        table = self.topics.table()
        first, end = _page(request, "topicSeq", "maxTopicNum", table.data_version)
        page = islice(table.topic_configs.items(), first, end)
        members = {
            "dataVersion": table.data_version.to_members(),
            "topicConfigTable": ((name, topic_config_members(topic)) for name, topic in page),
            "mappingDataVersion": NO_VERSION.to_members(),
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
        return answer_in_turns(self.long_work, object_pieces(members), {"totalTopicNum": str(len(table.topic_configs))})


@dataclass(frozen=True, slots=True)
class GroupRequests:
    groups: GroupTable
    offsets: GroupOffsets
    figures: BrokerFigures
    long_work: BoundedWork

    def handlers(self) -> Handlers:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: checked(self.get_group, group=group_fault),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: checked(self.delete_group, groupName=group_fault),
        }

    def update_group(self, request: Command, _: Peer) -> Answer:
        if len(request.body) > MAX_GROUP_BYTES:
            remark = f"the settings of a group have {len(request.body)} bytes; {MAX_GROUP_BYTES} at most are kept"
            return refusal(ResponseCode.INVALID_PARAMETER, remark)
        members = load_object(request.body, "subscription group")
        name = members.get("groupName")
        if fault := group_fault(name if isinstance(name, str) else ""):
            return refusal(ResponseCode.INVALID_PARAMETER, fault)
        try:
            self.groups.change(members, clock.now_ms())
        except BadAttribute as error:
            return refusal(ResponseCode.SYSTEM_ERROR, str(error))
        except InvalidArgument as error:
            return refusal(ResponseCode.INVALID_PARAMETER, str(error))
        return saved(self.groups.file)

    def get_group(self, request: Command, _: Peer) -> Command:
        name = request.ext.get("group", "")
        group = self.groups.find(name, clock.now_ms())
        if group is None:
            return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist")
        return success(body=dumps(dict(group)))

    def all_groups(self, request: Command, _: Peer) -> Answer:
        """Returns all groups, or the page of them that a slave requests."""
        first, end = _page(request, "groupSeq", "maxGroupNum", self.groups.data_version)
        members = self.groups.members()
        members["subscriptionGroupTable"] = islice(members["subscriptionGroupTable"].items(), first, end)
        return answer_in_turns(self.long_work, object_pieces(members), {"totalGroupNum": str(len(self.groups))})

    def delete_group(self, request: Command, _: Peer) -> Answer:
        name = request.ext.get("groupName", "")
        if name in self.groups:
            self.figures.forget_group(name)
        self.groups.remove(name, clock.now_ms())
        if any(parse_bool(request.ext.get(field, "false")) for field in CLEAN_OFFSET):
            self.offsets.forget_group(name)
        return saved(self.groups.file)


async def make_topics(broker: Broker, topics: Iterable[TopicConfig]) -> None:
    """Creates or changes topics as request 17 does. Attributes that a topic does not mention are unchanged.

    If a topic is refused, raises `InvalidArgument` and creates none. Raises `StoreError` if the disk fails.
    """
    table, wanted = broker.tables.topics, []
    for topic in topics:
        before = table.get(topic.topic)
        attributes = {} if before is None else before.attributes
        named = replace(topic, attributes=dict(topic.attributes.items() - attributes.items()))
        changed = changed_topic(table, UpdateTopic.of(named))
        if isinstance(changed, Command):
            name = broker.settings.config.broker_name
            raise InvalidArgument(f"topic {topic.topic} of {name}: {changed.remark}")
        wanted.append(changed)
    await broker.cluster.announcer.announce(*wanted, behind_file=True)


def changed_topic(
    topics: TopicTable, header: UpdateTopic, changes: Mapping[str, str] | None = None
) -> TopicConfig | Command:
    """Returns the configuration that request 17 with this `header` gives a topic, or a refusal. Changes nothing.

    `changes` are the changes of attributes. If it is None, those in `header` are used.
    """
    if _is_system(topics, header.topic):
        remark = f"The topic[{header.topic}] is conflict with system topic."
        return refusal(ResponseCode.INVALID_PARAMETER, remark)
    if fault := number_fault(header):
        return refusal(ResponseCode.INVALID_PARAMETER, fault)
    if header.topic_filter_type not in FILTER_TYPES:
        return refusal(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{header.topic_filter_type}] value invalid")
    before = topics.get(header.topic)
    present = None if before is None else before.attributes
    try:
        changes = parsed_changes(header.attributes or "") if changes is None else changes
        if changes.get(f"+{MESSAGE_TYPE}") == MIXED:
            return refusal(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        attributes = changed_attributes(TOPIC_ATTRIBUTES, present, changes)
    except BadAttribute as error:
        return refusal(ResponseCode.SYSTEM_ERROR, str(error))
    return TopicConfig(
        topic=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=bool(header.order),
        attributes=attributes,
    )


async def announced(announcer: TopicAnnouncer, *topics: TopicConfig) -> Command:
    """Creates or changes topics. Returns success once all changes of topics are written and announced.

    Returns a refusal if the disk fails.
    """
    try:
        await make_topic(announcer, *topics)
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    return success()


async def saved(file: TableFile) -> Command:
    try:
        with refused_by_disk():
            await file.written()
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    return success()


def number_fault(header: UpdateTopic) -> str:
    """Returns an error text for a number out of range, or an empty text. 5.4.0 accepts any number."""
    for name, number, most in (
        ("readQueueNums", header.read_queue_nums, MAX_QUEUES_PER_TOPIC),
        ("writeQueueNums", header.write_queue_nums, MAX_QUEUES_PER_TOPIC),
        ("perm", header.perm, MAX_PERM),
        ("topicSysFlag", header.topic_sys_flag or 0, MAX_SYS_FLAG),
    ):
        if not 0 <= number <= most:
            return f"{name} of topic[{header.topic}] is {number}; 0 to {most} are possible"
    return ""


def _is_system(topics: TopicTable, topic: str) -> bool:
    return is_system_topic(topic) or topics.is_system(topic)


async def _free(topic: str, frees: list[Callable[[], None]]) -> None:
    """Frees the disk space of a deleted topic. If the broker stops meanwhile, its next start frees the rest."""
    for free in frees:
        try:
            await trio.to_thread.run_sync(free, abandon_on_cancel=True)
        except StoreError as error:
            log.warning("the space of topic %s is not free before the next start: %s", topic, error)


def _page(request: Command, first: str, most: str, version: DataVersion) -> tuple[int, int | None]:
    """Returns which rows of a table a slave requests: the first row, and the row after the last, or None for all.

    If the slave names another version of the table, the page begins with the table's first row, as in
    TopicConfigManager.subTopicConfigTable.
    """
    try:
        count, start = (parse_int(request.ext.get(name, "0")) for name in (most, first))
    except ValueError as error:
        raise HeaderError(f"{first} or {most} is no number: {error}") from error
    if count <= 0:
        return 0, None
    own_version = request.ext.get("dataVersion", "")
    is_same = own_version.strip() and DataVersion.from_json(own_version.encode()) == version
    start = max(0, start) if is_same else 0
    return start, start + count
