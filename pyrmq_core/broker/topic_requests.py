"""Topics and groups administered: 17, 21, 215, 351; 200, 201, 207, 352; and single messages by place (33).

Source: broker/processor/AdminBrokerProcessor.java, QueryMessageProcessor.java (5.4.0).
"""

from __future__ import annotations

import re
from typing import Final

from pyrmq_core.broker.sending import topic_fault
from pyrmq_core.broker.state import Answer, Broker
from pyrmq_core.broker.storing import Refused, make_topic
from pyrmq_core.errors import HeaderError, InvalidArgument
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.codes import ResponseCode
from pyrmq_core.protocol.command import Command, refusal, success
from pyrmq_core.protocol.fields import parse_bool
from pyrmq_core.protocol.java_json import dumps, load_object
from pyrmq_core.protocol.names import check_group, is_system_topic
from pyrmq_core.protocol.requests.topic_admin import (
    DeleteTopic,
    GetTopicConfig,
    TopicConfigFound,
    UpdateTopic,
    changed_attributes,
)
from pyrmq_core.protocol.topic_config import NO_VERSION

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
# common/TopicAttributes.java; those that say how queues are kept have few values here.
ATTRIBUTES: Final = (
    "queue.type",
    "cleanup.policy",
    "message.type",
    "reserve.time",
    "priority.type",
    "lite.topic.expiration",
)
KEPT_ONLY: Final = {"queue.type": ("SimpleCQ", "BatchCQ"), "cleanup.policy": ("DELETE",)}
# Said once and for all, when the topic is made (common/attribute/AttributeUtil.java).
UNCHANGEABLE: Final = re.compile(r"[+-](queue\.type|cleanup\.policy)(?:=|,|$)")


def update_topic(broker: Broker, request: Command, _: Peer) -> Answer:
    """A new topic, or new settings of one that exists; answered when the NameServers know."""
    wanted = UpdateTopic.from_command(request)
    fault = topic_fault(wanted.topic)
    if not fault and is_system(broker, wanted.topic):
        fault = f"The topic[{wanted.topic}] is conflict with system topic."
    if fault:
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
    return success() if topic == known else _announced(broker, topic)


async def _announced(broker: Broker, topic: TopicConfig) -> Command:
    try:
        await make_topic(broker, topic)
    except Refused as refused:
        return refusal(refused.code, str(refused))
    return success()


def is_system(broker: Broker, topic: str) -> bool:
    return is_system_topic(topic) or broker.topics.is_system(topic)


def attribute_fault(attributes: dict[str, str]) -> str:
    """What is wrong with a topic's attributes; empty when nothing is."""
    for name, value in attributes.items():
        if name not in ATTRIBUTES:
            return f"unsupported key: {name}"
        if value not in KEPT_ONLY.get(name, (value,)):
            possible = " or ".join(KEPT_ONLY[name])
            return f"{name}={value} asks for queues that this broker does not keep; {possible} is possible"
    return ""


def delete_topic(broker: Broker, request: Command, _: Peer) -> Command:
    """Its queues and committed offsets go, too; NameServers are told by those who delete (216)."""
    wanted = DeleteTopic.from_command(request)
    if not wanted.topic.strip():
        return refusal(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
    if is_system(broker, wanted.topic):
        return refusal(ResponseCode.INVALID_PARAMETER, f"The topic[{wanted.topic}] is conflict with system topic.")
    broker.topics.remove(wanted.topic, broker.now_ms())
    broker.offsets.forget_topic(wanted.topic)
    broker.store.delete_topic(wanted.topic)
    return success()


def get_topic(broker: Broker, request: Command, _: Peer) -> Command:
    wanted = GetTopicConfig.from_command(request)
    topic = broker.topics.get(wanted.topic)
    if topic is None:
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {wanted.topic}")
    return TopicConfigFound(topic).to_command()


def all_topics(broker: Broker, _request: Command, _: Peer) -> Command:
    table = broker.topics.table()
    members = {
        **table.to_members(),
        "mappingDataVersion": NO_VERSION.to_members(),
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return success({"totalTopicNum": str(len(table.topic_configs))}, dumps(members))


def update_group(broker: Broker, request: Command, _: Peer) -> Command:
    members = load_object(request.body, "subscription group")
    name = members.get("groupName")
    try:
        check_group(name if isinstance(name, str) else "")
    except InvalidArgument as error:
        return refusal(ResponseCode.INVALID_PARAMETER, str(error))
    broker.groups.put(members, broker.now_ms())
    return success()


def get_group(broker: Broker, request: Command, _: Peer) -> Command:
    name = request.ext.get("group", "")
    group = broker.groups.find(name, broker.now_ms())
    if group is None:
        return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist")
    return success(body=dumps(dict(group)))


def all_groups(broker: Broker, _request: Command, _: Peer) -> Command:
    return success({"totalGroupNum": str(len(broker.groups))}, dumps(broker.groups.members()))


def delete_group(broker: Broker, request: Command, _: Peer) -> Command:
    name = request.ext.get("groupName", "")
    broker.groups.remove(name, broker.now_ms())
    if parse_bool(request.ext.get("cleanOffset", "false")):
        broker.offsets.forget_group(name)
    return success()


def view_message(broker: Broker, request: Command, _: Peer) -> Command:
    offset = int(request.ext.get("offset", ""))
    record = broker.store.record(offset)
    if record is None:
        return refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    return success(body=record)
