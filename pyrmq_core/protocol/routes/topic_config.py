"""Topic configurations and their version, as brokers store, register and return them.

Sources: common/TopicConfig.java, remoting/protocol/DataVersion.java,
remoting/protocol/body/TopicConfigSerializeWrapper.java.
4.x has neither `stateVersion` nor `attributes`: if missing, they are read as 0 and empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.model import NO_PROPERTIES, TopicConfig
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object

# The most queues of a topic at one broker. RocketMQ has no limit, but maps a file into memory for each queue, and Linux
# allows a process 65,530 mappings.
MAX_QUEUES_PER_TOPIC: Final = 65_535


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of a broker's topics. Two versions are the same if all three numbers are equal."""

    timestamp_ms: int = 0
    counter: int = 0
    state_version: int = 0

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(now_ms, self.counter + 1, self.state_version)

    def to_members(self) -> dict[str, Any]:
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp_ms}

    def to_json(self) -> bytes:
        return dumps(self.to_members())

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        try:
            return cls(
                timestamp_ms=long_member(members.get("timestamp", 0)),
                counter=long_member(members.get("counter", 0)),
                state_version=long_member(members.get("stateVersion", 0)),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise BodyError(f"data version: a member is no number: {error}") from error

    @classmethod
    def from_json(cls, body: bytes | memoryview) -> Self:
        return cls.from_members(load_object(body, "data version"))


NO_VERSION: Final = DataVersion()


def queue_count(value: object) -> int:
    """Returns a number of queues from a JSON value. Raises `ValueError` or `TypeError` for an invalid one."""
    count = int_member(value)
    if not 0 <= count <= MAX_QUEUES_PER_TOPIC:
        raise ValueError(f"{count} queues; a topic has between 0 and {MAX_QUEUES_PER_TOPIC} at one broker")
    return count


def topic_config_members(config: TopicConfig) -> dict[str, Any]:
    return {
        "attributes": dict(config.attributes),
        "order": config.order,
        "perm": int(config.perm),
        "readQueueNums": config.read_queue_nums,
        "topicFilterType": config.topic_filter_type,
        "topicName": config.topic,
        "topicSysFlag": config.topic_sys_flag,
        "writeQueueNums": config.write_queue_nums,
    }


def topic_config_from_members(members: Mapping[str, Any]) -> TopicConfig:
    """Returns a topic's configuration from the members of a JSON object, with Java's defaults for missing ones.

    Raises `BodyError` if the name is missing or a member has the wrong type.
    """
    try:
        attributes = members.get("attributes")
        return TopicConfig(
            topic=_text(members["topicName"]),
            read_queue_nums=queue_count(members.get("readQueueNums", 16)),
            write_queue_nums=queue_count(members.get("writeQueueNums", 16)),
            perm=int_member(members.get("perm", 6)),
            topic_filter_type=_text(members.get("topicFilterType") or "SINGLE_TAG"),
            topic_sys_flag=int_member(members.get("topicSysFlag", 0)),
            order=members.get("order") is True,
            attributes={_text(name): _text(value) for name, value in attributes.items()}
            if attributes
            else NO_PROPERTIES,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BodyError(f"topic configuration: a member is missing or of the wrong type: {error!r}") from error


@dataclass(frozen=True, slots=True)
class TopicConfigTable:
    """The configurations of all topics of a broker, and their version: the content of `topics.json`.

    The answer to GET_ALL_TOPIC_CONFIG has the same content.
    """

    data_version: DataVersion
    topic_configs: Mapping[str, TopicConfig]

    @classmethod
    def of(cls, data_version: DataVersion, topic_configs: Iterable[TopicConfig]) -> Self:
        return cls(data_version, {config.topic: config for config in topic_configs})

    def to_members(self) -> dict[str, Any]:
        return {
            "dataVersion": self.data_version.to_members(),
            "topicConfigTable": {topic: topic_config_members(config) for topic, config in self.topic_configs.items()},
        }

    def to_json(self) -> bytes:
        return dumps(self.to_members())

    @classmethod
    def from_json(cls, body: bytes | memoryview) -> Self:
        members = load_object(body, "topic configurations")
        table = members.get("topicConfigTable") or {}
        if not isinstance(table, dict):
            raise BodyError("topic configurations: topicConfigTable is not an object")
        version = members.get("dataVersion") or {}
        return cls.of(DataVersion.from_members(version), map(topic_config_from_members, table.values()))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
