"""Lists of the topics that a NameServer knows: GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206), GET_TOPICS_BY_CLUSTER (224),
GET_SYSTEM_TOPIC_LIST_FROM_NS (304), GET_UNIT_TOPIC_LIST (311), GET_HAS_UNIT_SUB_TOPIC_LIST (312),
GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313).

All answer a `TopicList`. The answer to request 304 has the names of clusters and brokers (each is a topic too) and one
broker's address. Source: remoting/protocol/body/TopicList.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.json_text import dumps, load_object


@dataclass(frozen=True, slots=True)
class GetAllTopicList(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@dataclass(frozen=True, slots=True)
class GetTopicsByCluster(HeaderRequest):
    """A request for the topics of one cluster's brokers. An unknown cluster has none."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str | None = wire("cluster", None)


@dataclass(frozen=True, slots=True)
class GetSystemTopicList(HeaderRequest):
    """A request for the names of clusters and brokers."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


@dataclass(frozen=True, slots=True)
class GetUnitTopicList(HeaderRequest):
    """A request for unit topics: those whose system flag has bit 0 set."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_UNIT_TOPIC_LIST


@dataclass(frozen=True, slots=True)
class GetHasUnitSubTopicList(HeaderRequest):
    """A request for topics that units subscribe to: those whose system flag has bit 1 set."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


@dataclass(frozen=True, slots=True)
class GetHasUnitSubUnunitTopicList(HeaderRequest):
    """A request for topics that units subscribe to and that are not unit topics themselves."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


@dataclass(frozen=True, slots=True)
class TopicList:
    """The names of topics: the answer to any request of this module. Only `GetSystemTopicList` gets `broker_addr`."""

    topics: tuple[str, ...]
    broker_addr: str | None = None

    def to_command(self) -> Command:
        address = {} if self.broker_addr is None else {"brokerAddr": self.broker_addr}
        return success(body=dumps({**address, "topicList": list(self.topics)}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "topic list")
        topics = members.get("topicList") or []
        if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
            raise BodyError("topic list: topicList is not a list of names")
        address = members.get("brokerAddr")
        return cls(tuple(topics), None if address is None else str(address))
