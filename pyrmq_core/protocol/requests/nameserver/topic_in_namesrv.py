"""DELETE_TOPIC_IN_NAMESRV (216) and REGISTER_TOPIC_IN_NAMESRV (217): one topic's route, changed by an administrator.

Both are answered without fields, also when nothing changes. 217 needs 5.x: a NameServer of 4.9 does not answer it.
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
    """A request to remove the topic's queues from a NameServer's routes: those of one cluster's brokers, or all."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str = wire("topic")
    cluster_name: str | None = wire("clusterName", None)


@dataclass(frozen=True, slots=True)
class RegisterTopicInNamesrv:
    """A request to register queues of a topic at brokers, in the order of the list.

    At the first broker that the NameServer does not know, it ignores the rest of the list, and for a new topic the
    whole list.
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
