"""Administration of topics (17, 21, 215, 351) and groups (200, 201, 207, 352), and messages by log offset (33).

Source: broker/processor/AdminBrokerProcessor.java, QueryMessageProcessor.java (5.4.0).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.broker.broker import Answer, Broker
from pyrmq_core.broker.processors.name_rules import group_fault
from pyrmq_core.broker.processors.put_message import RequestRefused, make_topic, refused_by_disk
from pyrmq_core.broker.processors.table_answers import table_answer
from pyrmq_core.broker.tables.subscription_groups import MAX_GROUP_BYTES
from pyrmq_core.broker.tables.table_file import TableFile
from pyrmq_core.errors import HeaderError, InvalidArgument, StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.framing.fields import parse_bool
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.names import is_system_topic
from pyrmq_core.protocol.requests.broker.topic_admin import (
    DeleteTopic,
    GetTopicConfig,
    TopicConfigFound,
    UpdateTopic,
    changed_attributes,
)
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC, NO_VERSION

log = logging.getLogger(__name__)

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
# common/TopicAttributes.java. Of the attributes in KEPT_ONLY, which change how queues are kept, few values are built.
ATTRIBUTES: Final = (
    "queue.type",
    "cleanup.policy",
    "message.type",
    "reserve.time",
    "priority.type",
    "lite.topic.expiration",
)
KEPT_ONLY: Final = {"queue.type": ("SimpleCQ", "BatchCQ"), "cleanup.policy": ("DELETE",)}
MAX_ATTRIBUTE_CHARS: Final = 127
OFFSET: Final = re.compile(r"\d{1,18}", re.ASCII)
ATTRIBUTE_VALUE: Final = re.compile(f"[!-~]{{1,{MAX_ATTRIBUTE_CHARS}}}")
# READ, WRITE, INHERIT; PERM_PRIORITY is the next bit (common/constant/PermName.java).
MAX_PERM: Final = 15
MAX_SYS_FLAG: Final = 2**31 - 1
# Set when the topic is made, and never changed (common/attribute/AttributeUtil.java).
UNCHANGEABLE: Final = re.compile(r"[+-](queue\.type|cleanup\.policy)(?:=|,|$)")


def update_topic(broker: Broker, request: Command, _: Peer) -> Answer:
    """Makes a topic or changes its settings; answers after the file is written and the NameServers are informed."""
    wanted = UpdateTopic.from_command(request)
    if is_system(broker, wanted.topic):
        remark = f"The topic[{wanted.topic}] is conflict with system topic."
        return refusal(ResponseCode.INVALID_PARAMETER, remark)
    if fault := number_fault(wanted):
        return refusal(ResponseCode.INVALID_PARAMETER, fault)
    if wanted.topic_filter_type not in FILTER_TYPES:
        return refusal(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{wanted.topic_filter_type}] value invalid")
    known = broker.topics.get(wanted.topic)
    if known is not None and (said := UNCHANGEABLE.search(wanted.attributes or "")):
        remark = f"attempt to update an unchangeable attribute. key: {said[1]}"
        return refusal(ResponseCode.SYSTEM_ERROR, remark)
    try:
        attributes = changed_attributes({} if known is None else known.attributes, wanted.attributes or "")
    except HeaderError as error:
        return refusal(ResponseCode.SYSTEM_ERROR, str(error))
    if fault := attribute_fault(attributes):
        return refusal(ResponseCode.SYSTEM_ERROR, fault)
    topic = TopicConfig(
        topic=wanted.topic,
        read_queue_nums=wanted.read_queue_nums,
        write_queue_nums=wanted.write_queue_nums,
        perm=wanted.perm,
        topic_filter_type=wanted.topic_filter_type,
        topic_sys_flag=wanted.topic_sys_flag or 0,
        order=bool(wanted.order),
        attributes=attributes,
    )
    return success() if topic == known and not broker.topics.file.is_behind else _made(broker, topic)


async def _made(broker: Broker, topic: TopicConfig) -> Command:
    try:
        await make_topic(broker, topic)
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    return success()


async def _saved(file: TableFile) -> Command:
    """Returns success when the file has every change so far, a refusal if it cannot be written."""
    try:
        with refused_by_disk():
            await file.written()
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    return success()


def number_fault(wanted: UpdateTopic) -> str:
    """Returns the fault of a number out of range, or an empty text.

    5.4.0 accepts any number, and its clients then receive a route with more queues than they can hold.
    """
    for name, number, most in (
        ("readQueueNums", wanted.read_queue_nums, MAX_QUEUES_PER_TOPIC),
        ("writeQueueNums", wanted.write_queue_nums, MAX_QUEUES_PER_TOPIC),
        ("perm", wanted.perm, MAX_PERM),
        ("topicSysFlag", wanted.topic_sys_flag or 0, MAX_SYS_FLAG),
    ):
        if not 0 <= number <= most:
            return f"{name} of topic[{wanted.topic}] is {number}; 0 to {most} are possible"
    return ""


def is_system(broker: Broker, topic: str) -> bool:
    return is_system_topic(topic) or broker.topics.is_system(topic)


def attribute_fault(attributes: dict[str, str]) -> str:
    """Returns the fault of a topic's attributes, or an empty text."""
    for name, value in attributes.items():
        if name not in ATTRIBUTES:
            return f"unsupported key: {name[:80]}"
        if not ATTRIBUTE_VALUE.fullmatch(value):
            return f"{name} has a value that is empty, longer than {MAX_ATTRIBUTE_CHARS}, or no printable ASCII"
        if value not in KEPT_ONLY.get(name, (value,)):
            possible = " or ".join(KEPT_ONLY[name])
            return f"{name}={value} asks for queues that this broker does not keep; {possible} is possible"
    return ""


def delete_topic(broker: Broker, request: Command, _: Peer) -> Answer:
    """Deletes a topic, its queues and its committed offsets; the tool itself informs the NameServers (216).

    The queues go first: a message that arrives before the file is written belongs to a new topic.
    """
    wanted = DeleteTopic.from_command(request)
    if is_system(broker, wanted.topic):
        return refusal(ResponseCode.INVALID_PARAMETER, f"The topic[{wanted.topic}] is conflict with system topic.")
    if wanted.topic not in broker.topics and not broker.store.queues_of(wanted.topic):
        return success()
    return _deleted(broker, wanted.topic)


async def _deleted(broker: Broker, topic: str) -> Command:
    await broker.flusher.flush_queues()  # in a thread: deleting flushes the rest on the loop
    try:
        with refused_by_disk():
            frees = broker.store.delete_topic(topic)
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    broker.topics.remove(topic, broker.now_ms())
    broker.offsets.forget_topic(topic)
    broker.nursery.start_soon(_free, topic, frees)
    return await _saved(broker.topics.file)


async def _free(topic: str, frees: list[Callable[[], None]]) -> None:
    """Frees the disk space of a deleted topic; if a stop interrupts it, the next start does the rest."""
    for free in frees:
        try:
            await trio.to_thread.run_sync(free, abandon_on_cancel=True)
        except StoreError as error:
            log.warning("the space of topic %s is not free before the next start: %s", topic, error)


def get_topic(broker: Broker, request: Command, _: Peer) -> Command:
    wanted = GetTopicConfig.from_command(request)
    topic = broker.topics.get(wanted.topic)
    if topic is None:
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {wanted.topic}")
    return TopicConfigFound(topic).to_command()


def all_topics(broker: Broker, _request: Command, _: Peer) -> Answer:
    table = broker.topics.table()
    members = {
        **table.to_members(),
        "mappingDataVersion": NO_VERSION.to_members(),
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return table_answer(members, {"totalTopicNum": str(len(table.topic_configs))})


def update_group(broker: Broker, request: Command, _: Peer) -> Answer:
    """Makes a group or changes its settings; answers when the file has it."""
    if len(request.body) > MAX_GROUP_BYTES:
        remark = f"the settings of a group have {len(request.body)} bytes; {MAX_GROUP_BYTES} at most are kept"
        return refusal(ResponseCode.INVALID_PARAMETER, remark)
    members = load_object(request.body, "subscription group")
    name = members.get("groupName")
    if fault := group_fault(name if isinstance(name, str) else ""):
        return refusal(ResponseCode.INVALID_PARAMETER, fault)
    try:
        broker.groups.put(members, broker.now_ms())
    except InvalidArgument as error:
        return refusal(ResponseCode.INVALID_PARAMETER, str(error))
    return _saved(broker.groups.file)


def get_group(broker: Broker, request: Command, _: Peer) -> Command:
    name = request.ext.get("group", "")
    group = broker.groups.find(name, broker.now_ms())
    if group is None:
        return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist")
    return success(body=dumps(dict(group)))


def all_groups(broker: Broker, _request: Command, _: Peer) -> Answer:
    return table_answer(broker.groups.members(), {"totalGroupNum": str(len(broker.groups))})


def delete_group(broker: Broker, request: Command, _: Peer) -> Answer:
    name = request.ext.get("groupName", "")
    broker.groups.remove(name, broker.now_ms())
    if parse_bool(request.ext.get("cleanOffset", "false")):
        broker.offsets.forget_group(name)
    return _saved(broker.groups.file)


def view_message(broker: Broker, request: Command, _: Peer) -> Command:
    text = request.ext.get("offset", "")
    if not OFFSET.fullmatch(text):
        return refusal(ResponseCode.INVALID_PARAMETER, f"field offset is {text[:80]!r}; a place in the log is a number")
    record = broker.store.record(int(text))
    if record is None:
        return refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {text}")
    return success(body=record)
