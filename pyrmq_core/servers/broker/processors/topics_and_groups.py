"""Administration of topics (17, 21, 215, 351) and groups (200, 201, 207, 352), and messages by log offset (33).

Source: broker/processor/AdminBrokerProcessor.java, QueryMessageProcessor.java (5.4.0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

import trio

from pyrmq_core.errors import HeaderError, InvalidArgument, StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.framing.fields import parse_bool
from pyrmq_core.protocol.java.integers import parse_int
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.names import is_system_topic
from pyrmq_core.protocol.requests.broker.topic_admin import (
    DeleteTopic,
    GetTopicConfig,
    TopicConfigFound,
    UpdateTopic,
)
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC, NO_VERSION, DataVersion, topic_config_members
from pyrmq_core.servers.broker.broker import Answer, Broker
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, object_pieces
from pyrmq_core.servers.broker.processors.name_rules import group_fault
from pyrmq_core.servers.broker.processors.put_message import (
    RequestRefused,
    announce_topics,
    make_topic,
    refused_by_disk,
)
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
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

log = logging.getLogger(__name__)

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
# All four bits of a topic's permission (common/constant/PermName.java).
MAX_PERM: Final = 15
MAX_SYS_FLAG: Final = 2**31 - 1
# The flags of 5.x and of 4.9 by which a group's offsets are deleted with it.
CLEAN_OFFSET: Final = ("cleanOffset", "removeOffset")


def update_topic(broker: Broker, request: Command, _: Peer) -> Answer:
    """Makes a topic or changes its settings; answers after the file is written and the NameServers are informed."""
    changed = changed_topic(broker, UpdateTopic.from_command(request))
    return changed if isinstance(changed, Command) else made(broker, changed)


async def make_topics(broker: Broker, topics: Iterable[TopicConfig]) -> None:
    """Makes or changes topics as request 17 does, but without a request; attributes that are not named stay.

    Raises `InvalidArgument` for a topic that is refused, before any is made, and `StoreError` for a failed disk.
    """
    wanted = []
    for topic in topics:
        before = broker.topics.get(topic.topic)
        attributes = {} if before is None else before.attributes
        named = replace(topic, attributes=dict(topic.attributes.items() - attributes.items()))
        changed = changed_topic(broker, UpdateTopic.of(named))
        if isinstance(changed, Command):
            raise InvalidArgument(f"topic {topic.topic} of {broker.config.broker_name}: {changed.remark}")
        wanted.append(changed)
    await announce_topics(broker, *wanted, behind_file=True)


def changed_topic(
    broker: Broker, header: UpdateTopic, changes: Mapping[str, str] | None = None
) -> TopicConfig | Command:
    """Returns the topic's configuration after the change, or a refusal.

    `changes` are those of the attributes, if not the text in `header` has them.
    """
    if is_system(broker, header.topic):
        remark = f"The topic[{header.topic}] is conflict with system topic."
        return refusal(ResponseCode.INVALID_PARAMETER, remark)
    if fault := number_fault(header):
        return refusal(ResponseCode.INVALID_PARAMETER, fault)
    if header.topic_filter_type not in FILTER_TYPES:
        return refusal(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{header.topic_filter_type}] value invalid")
    before = broker.topics.get(header.topic)
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


def made(broker: Broker, *topics: TopicConfig) -> Answer:
    """Makes or changes the topics; answers at once if they are so already."""
    changed = [topic for topic in topics if topic != broker.topics.get(topic.topic)]
    return announced(broker, *changed) if changed or broker.topics.file.is_behind else success()


async def announced(broker: Broker, *topics: TopicConfig) -> Command:
    """Makes or changes the topics; returns success when all topics so far are in the file and announced."""
    try:
        await make_topic(broker, *topics)
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    return success()


async def saved(file: TableFile) -> Command:
    """Returns success when the file has every change so far, a refusal if it cannot be written."""
    try:
        with refused_by_disk():
            await file.written()
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    return success()


def number_fault(header: UpdateTopic) -> str:
    """Returns the fault of a number out of range, or an empty text.

    5.4.0 accepts any number, and its clients then receive a route with more queues than they can hold.
    """
    for name, number, most in (
        ("readQueueNums", header.read_queue_nums, MAX_QUEUES_PER_TOPIC),
        ("writeQueueNums", header.write_queue_nums, MAX_QUEUES_PER_TOPIC),
        ("perm", header.perm, MAX_PERM),
        ("topicSysFlag", header.topic_sys_flag or 0, MAX_SYS_FLAG),
    ):
        if not 0 <= number <= most:
            return f"{name} of topic[{header.topic}] is {number}; 0 to {most} are possible"
    return ""


def is_system(broker: Broker, topic: str) -> bool:
    return is_system_topic(topic) or broker.topics.is_system(topic)


def delete_topic(broker: Broker, request: Command, _: Peer) -> Answer:
    """Deletes a topic, its queues and its committed offsets; the tool itself informs the NameServers (216).

    The queues go first: a message that arrives before the file is written belongs to a new topic.
    """
    header = DeleteTopic.from_command(request)
    if is_system(broker, header.topic):
        return refusal(ResponseCode.INVALID_PARAMETER, f"The topic[{header.topic}] is conflict with system topic.")
    if header.topic not in broker.topics and not broker.store.reader.queues_of(header.topic):
        return success()
    return _deleted(broker, header.topic)


async def _deleted(broker: Broker, topic: str) -> Command:
    await broker.flusher.flush_queues()  # in a thread, so that deleting has little left to flush on the loop
    try:
        with refused_by_disk():
            frees = broker.store.delete_topic(topic)
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    broker.topics.remove(topic, broker.now_ms())
    readers = broker.offsets.readers_of(topic)
    broker.offsets.forget_topic(topic, [group for group in readers if broker.clients.members(group)])
    broker.nursery.start_soon(_free, topic, frees)
    broker.figures.forget_topic(topic)
    return await saved(broker.topics.file)


async def _free(topic: str, frees: list[Callable[[], None]]) -> None:
    """Frees the disk space of a deleted topic; if a stop interrupts it, the next start does the rest."""
    for free in frees:
        try:
            await trio.to_thread.run_sync(free, abandon_on_cancel=True)
        except StoreError as error:
            log.warning("the space of topic %s is not free before the next start: %s", topic, error)


def get_topic(topics: TopicTable, request: Command) -> Command:
    header = GetTopicConfig.from_command(request)
    topic = topics.get(header.topic)
    if topic is None:
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
    return TopicConfigFound(topic).to_command()


def all_topics(long_work: BoundedWork, topics: TopicTable, request: Command) -> Answer:
    """Returns all topics, or a page of them for a slave."""
    table = topics.table()
    first, end = _page(request, "topicSeq", "maxTopicNum", table.data_version)
    page = islice(table.topic_configs.items(), first, end)
    members = {
        "dataVersion": table.data_version.to_members(),
        "topicConfigTable": ((name, topic_config_members(topic)) for name, topic in page),
        "mappingDataVersion": NO_VERSION.to_members(),
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return answer_in_turns(long_work, object_pieces(members), {"totalTopicNum": str(len(table.topic_configs))})


def update_group(groups: GroupTable, now_ms: int, request: Command) -> Answer:
    """Makes a group or changes its settings; answers when the file has it."""
    if len(request.body) > MAX_GROUP_BYTES:
        remark = f"the settings of a group have {len(request.body)} bytes; {MAX_GROUP_BYTES} at most are kept"
        return refusal(ResponseCode.INVALID_PARAMETER, remark)
    members = load_object(request.body, "subscription group")
    name = members.get("groupName")
    if fault := group_fault(name if isinstance(name, str) else ""):
        return refusal(ResponseCode.INVALID_PARAMETER, fault)
    try:
        groups.change(members, now_ms)
    except BadAttribute as error:
        return refusal(ResponseCode.SYSTEM_ERROR, str(error))
    except InvalidArgument as error:
        return refusal(ResponseCode.INVALID_PARAMETER, str(error))
    return saved(groups.file)


def get_group(groups: GroupTable, now_ms: int, request: Command) -> Command:
    name = request.ext.get("group", "")
    group = groups.find(name, now_ms)
    if group is None:
        return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist")
    return success(body=dumps(dict(group)))


def all_groups(long_work: BoundedWork, groups: GroupTable, request: Command) -> Answer:
    """Returns all groups, or a page of them for a slave."""
    first, end = _page(request, "groupSeq", "maxGroupNum", groups.data_version)
    members = groups.members()
    members["subscriptionGroupTable"] = islice(members["subscriptionGroupTable"].items(), first, end)
    return answer_in_turns(long_work, object_pieces(members), {"totalGroupNum": str(len(groups))})


def _page(request: Command, first: str, most: str, version: DataVersion) -> tuple[int, int | None]:
    """Returns the numbers of a page's first row and of the first row after the page; None for all further rows.

    A slave that names another version than this one, or none, begins again (TopicConfigManager.subTopicConfigTable).
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


def delete_group(
    groups: GroupTable, offsets: GroupOffsets, figures: BrokerFigures, now_ms: int, request: Command
) -> Answer:
    name = request.ext.get("groupName", "")
    if name in groups:
        figures.forget_group(name)
    groups.remove(name, now_ms)
    if any(parse_bool(request.ext.get(field, "false")) for field in CLEAN_OFFSET):
        offsets.forget_group(name)
    return saved(groups.file)
