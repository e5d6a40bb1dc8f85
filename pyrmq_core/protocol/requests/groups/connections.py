"""Clients connected to a broker: GET_CONSUMER_CONNECTION_LIST (203), GET_PRODUCER_CONNECTION_LIST (204) and
GET_ALL_PRODUCER_INFO (328).

For a group without members, the response code is CONSUMER_NOT_ONLINE (request 203) or 1 (request 204). The version of a
client is a number of common/MQVersion.java.
Sources: remoting/protocol/header/GetConsumerConnectionListRequestHeader.java and its neighbours,
remoting/protocol/body/Connection.java, ConsumerConnection.java, ProducerConnection.java, ProducerTableInfo.java,
ProducerInfo.java, 5.4.0 and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.java.members import from_members, member, text_member
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData


@dataclass(frozen=True, slots=True)
class GetConsumerConnections(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_CONNECTION_LIST
    consumer_group: str = wire("consumerGroup")


@dataclass(frozen=True, slots=True)
class GetProducerConnections(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_PRODUCER_CONNECTION_LIST
    producer_group: str = wire("producerGroup")


@dataclass(frozen=True, slots=True)
class GetAllProducers(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_PRODUCER_INFO


@dataclass(frozen=True, slots=True)
class Connection:
    """One client of a group, as a broker reports it."""

    client_id: str = member("clientId", "", text_member)
    address: str = member("clientAddr", "", text_member)
    language: str = member("language", "", text_member)
    version: int = member("version", 0, int_member)


@dataclass(frozen=True, slots=True)
class ConsumerConnections:
    """The answer to `GetConsumerConnections`: a consumer group's connected members, settings and subscriptions.

    The settings and subscriptions are those of the latest heartbeat.
    """

    connections: tuple[Connection, ...]
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscriptions: Mapping[str, SubscriptionData] = field(default_factory=dict)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "members of a group")
        try:
            return cls(
                _connections(members),
                _optional(members.get("consumeType")),
                _optional(members.get("messageModel")),
                _optional(members.get("consumeFromWhere")),
                {
                    topic: SubscriptionData.from_members(data)
                    for topic, data in (members.get("subscriptionTable") or {}).items()
                },
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"members of a group: a member is missing or of the wrong type: {error!r}") from error


@dataclass(frozen=True, slots=True)
class ProducerConnections:
    connections: tuple[Connection, ...]

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "members of a producer group")
        try:
            return cls(_connections(members))
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"members of a producer group: a member is of the wrong type: {error!r}") from error


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """One client of a producer group. `last_update_ms` is the time of its last heartbeat."""

    client_id: str = member("clientId", "", text_member)
    address: str = member("remoteIP", "", text_member)
    language: str = member("language", "", text_member)
    version: int = member("version", 0, int_member)
    last_update_ms: int = member("lastUpdateTimestamp", 0, long_member)


@dataclass(frozen=True, slots=True)
class AllProducers:
    """The answer to `GetAllProducers`: the clients of each group."""

    groups: Mapping[str, tuple[ProducerInfo, ...]]

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "producers")
        try:
            return cls(
                {
                    group: tuple(from_members(ProducerInfo, producer) for producer in listed)
                    for group, listed in (members.get("data") or {}).items()
                }
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"producers: a member is of the wrong type: {error!r}") from error


def _connections(members: Mapping[str, Any]) -> tuple[Connection, ...]:
    return tuple(from_members(Connection, connection) for connection in members.get("connectionSet") or ())


def _optional(value: object) -> str | None:
    return None if value is None else text_member(value)
