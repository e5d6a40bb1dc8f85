"""DELETE_TOPIC_IN_NAMESRV (216) and REGISTER_TOPIC_IN_NAMESRV (217): one topic's route, changed by an administrator.

The answers are SUCCESS without fields, even if nothing changed. A NameServer of 4.9 does not answer request 217.
Sources: remoting/protocol/header/namesrv/DeleteTopicFromNamesrvRequestHeader.java, RegisterTopicRequestHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.routes.route import QueueData, TopicRouteData


@dataclass(frozen=True, slots=True)
class DeleteTopicInNamesrv(HeaderRequest):
    """A request to remove a topic's queues at the brokers of one cluster, or at all brokers, from the routes."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str = wire("topic")
    cluster_name: str | None = wire("clusterName", None)


@dataclass(frozen=True, slots=True)
class RegisterTopicInNamesrv:
    """A request to add queues of a topic to a NameServer's routes, for each broker of a list.

    At the first unknown broker, the NameServer ignores the rest of the list, or the whole list if the topic is new.
    """

    CODE: ClassVar[RequestCode] = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    topic: str
    queue_datas: tuple[QueueData, ...]

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(_TopicHeader(self.topic)), TopicRouteData(self.queue_datas).to_json())

    @classmethod
    def from_command(cls, command: Command) -> Self:
        header = decode_fields(_TopicHeader, command.ext, "REGISTER_TOPIC_IN_NAMESRV (217)")
        return cls(header.topic, TopicRouteData.from_json(command.body).queue_datas if command.body else ())


@dataclass(frozen=True, slots=True)
class _TopicHeader:
    topic: str = wire("topic")
