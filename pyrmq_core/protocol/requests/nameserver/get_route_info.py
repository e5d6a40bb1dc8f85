"""GET_ROUTEINFO_BY_TOPIC (105): the brokers that have a topic's queues.

A NameServer answers a request with `acceptStandardJsonOnly`, or with a version of 4.9.4 or later, in strict JSON. In
the older form of the answer, broker ids are keys without quotes. This library reads both.
Sources: remoting/protocol/header/namesrv/GetRouteInfoRequestHeader.java,
namesrv/processor/ClientRequestProcessor.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.routes.route import TopicRouteData


@dataclass(frozen=True, slots=True)
class GetRouteInfo(HeaderRequest):
    """A request for a topic's route. A NameServer that does not know the topic answers TOPIC_NOT_EXIST."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ROUTEINFO_BY_TOPIC
    topic: str = wire("topic")
    accept_standard_json_only: bool | None = wire("acceptStandardJsonOnly", None)


@dataclass(frozen=True, slots=True)
class RouteInfo:
    route: TopicRouteData

    def to_command(self) -> Command:
        return success(body=self.route.to_json())

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(TopicRouteData.from_json(command.body))
