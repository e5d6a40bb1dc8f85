"""Topics of one broker: UPDATE_AND_CREATE_TOPIC (17), DELETE_TOPIC_IN_BROKER (215), GET_TOPIC_CONFIG (351).

The answers to requests 17 and 215 have no fields, only a code. 4.9 ignores attributes and refuses request 351. Sources:
remoting/protocol/header/CreateTopicRequestHeader.java, DeleteTopicRequestHeader.java, GetTopicConfigRequestHeader.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.routes.topic_config import topic_config_from_members, topic_config_members


@dataclass(frozen=True, slots=True)
class UpdateTopic(HeaderRequest):
    """A request to create a topic, or change its settings. `attributes` are set and removed by `+name=value,-name`."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_TOPIC
    topic: str = wire("topic")
    read_queue_nums: int = wire_int("readQueueNums")
    write_queue_nums: int = wire_int("writeQueueNums")
    perm: int = wire_int("perm")
    default_topic: str = wire("defaultTopic", "TBW102")
    topic_filter_type: str = wire("topicFilterType", "SINGLE_TAG")
    topic_sys_flag: int | None = wire_int("topicSysFlag", 0)
    order: bool | None = wire("order", False)
    attributes: str | None = wire("attributes", None)

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        return cls(
            topic=config.topic,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=int(config.perm),
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=attribute_text(config.attributes) or None,
        )


@dataclass(frozen=True, slots=True)
class DeleteTopic(HeaderRequest):
    """A request to delete a topic, its queues and its offsets. The answer is SUCCESS also for an unknown topic."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_TOPIC_IN_BROKER
    topic: str = wire("topic")


@dataclass(frozen=True, slots=True)
class GetTopicConfig(HeaderRequest):
    """A request for a topic's settings. The answer is TOPIC_NOT_EXIST if the broker does not have the topic."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_TOPIC_CONFIG
    topic: str = wire("topic")


@dataclass(frozen=True, slots=True)
class TopicConfigFound:
    config: TopicConfig

    def to_command(self) -> Command:
        return success(body=dumps(topic_config_members(self.config)))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(topic_config_from_members(load_object(command.body, "topic configuration")))


def attribute_text(attributes: Mapping[str, str]) -> str:
    return ",".join(f"+{name}={value}" for name, value in attributes.items())
