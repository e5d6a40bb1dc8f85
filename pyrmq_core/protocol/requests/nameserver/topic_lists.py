"""Lists of the topics that a NameServer knows: GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206), GET_TOPICS_BY_CLUSTER (224).

`TopicList` is the answer. It is also the answer to four requests that pyrmq's clients never send:

    304  GET_SYSTEM_TOPIC_LIST_FROM_NS      the names of clusters and brokers (each is a topic too), a broker's address
    311  GET_UNIT_TOPIC_LIST                unit topics: those whose system flag has bit 0 set
    312  GET_HAS_UNIT_SUB_TOPIC_LIST        topics that units subscribe to: those whose system flag has bit 1 set
    313  GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST topics that units subscribe to and that are not unit topics themselves

Source: remoting/protocol/body/TopicList.java.
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
    """A request for the topics of one cluster's brokers. For an unknown cluster the answer has none."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str | None = wire("cluster", None)


@dataclass(frozen=True, slots=True)
class TopicList:
    """The names of topics. `broker_addr`, a broker's "ip:port", is only in the answer to request 304."""

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
