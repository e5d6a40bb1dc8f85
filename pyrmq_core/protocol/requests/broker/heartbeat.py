"""HEART_BEAT (34), a client's groups and subscriptions, and UNREGISTER_CLIENT (35), sent when it leaves a group.

Supported: version 1 of the heartbeat, which always has all subscriptions. Version 2's fingerprint of unchanged
subscriptions is sent as 0 (none). Sources: remoting/protocol/heartbeat/HeartbeatData.java, ConsumerData.java,
ProducerData.java, SubscriptionData.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """A group's subscription to one topic. Brokers filter by `code_set`, the Java hashes of `tags_set`."""

    topic: str
    sub_string: str = "*"
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False

    def to_members(self) -> dict[str, Any]:
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": list(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": list(self.tags_set),
            "topic": self.topic,
        }

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        return cls(
            topic=str(members["topic"]),
            sub_string=str(members.get("subString", "*")),
            tags_set=tuple(str(tag) for tag in members.get("tagsSet") or ()),
            code_set=tuple(int_member(code) for code in members.get("codeSet") or ()),
            sub_version=long_member(members.get("subVersion", 0)),
            expression_type=str(members.get("expressionType") or "TAG"),
            class_filter_mode=bool(members.get("classFilterMode", False)),
        )


@dataclass(frozen=True, slots=True)
class ConsumerData:
    group_name: str
    consume_type: str = "CONSUME_ACTIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False

    def to_members(self) -> dict[str, Any]:
        return {
            "consumeFromWhere": self.consume_from_where,
            "consumeType": self.consume_type,
            "groupName": self.group_name,
            "messageModel": self.message_model,
            "subscriptionDataSet": [subscription.to_members() for subscription in self.subscriptions],
            "unitMode": self.unit_mode,
        }

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        return cls(
            group_name=str(members["groupName"]),
            consume_type=str(members.get("consumeType", "CONSUME_ACTIVELY")),
            message_model=str(members.get("messageModel", "CLUSTERING")),
            consume_from_where=str(members.get("consumeFromWhere", "CONSUME_FROM_LAST_OFFSET")),
            subscriptions=tuple(
                SubscriptionData.from_members(subscription) for subscription in members.get("subscriptionDataSet") or ()
            ),
            unit_mode=bool(members.get("unitMode", False)),
        )


@dataclass(frozen=True, slots=True)
class HeartBeat:
    """A heartbeat: the client's groups and subscriptions. The answer's `version` is the broker's release."""

    CODE: ClassVar[RequestCode] = RequestCode.HEART_BEAT
    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()

    def to_command(self) -> Command:
        members = {
            "clientID": self.client_id,
            "consumerDataSet": [consumer.to_members() for consumer in self.consumers],
            "heartbeatFingerprint": 0,
            "producerDataSet": [{"groupName": group} for group in self.producer_groups],
            "withoutSub": False,
        }
        return Command(self.CODE, body=dumps(members))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls.from_members(load_object(command.body, "heartbeat"))

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        try:
            return cls(
                client_id=str(members["clientID"]),
                producer_groups=tuple(str(data["groupName"]) for data in members.get("producerDataSet") or ()),
                consumers=tuple(ConsumerData.from_members(data) for data in members.get("consumerDataSet") or ()),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BodyError(f"heartbeat: a member is missing or of the wrong type: {error!r}") from error


@dataclass(frozen=True, slots=True)
class HeartBeatAnswer(HeaderResponse):
    """The answer to `HeartBeat`. 5.x reports whether it supports version 2 of heartbeats, 4.9 sends no fields."""

    supports_v2: bool | None = wire("IS_SUPPORT_HEART_BEAT_V2", None)
    subscription_changed: bool | None = wire("IS_SUB_CHANGE", None)


@dataclass(frozen=True, slots=True)
class UnregisterClient(HeaderRequest):
    """A notice that a client leaves a group. The broker always answers SUCCESS."""

    CODE: ClassVar[RequestCode] = RequestCode.UNREGISTER_CLIENT
    client_id: str = wire("clientID")
    producer_group: str | None = wire("producerGroup", None)
    consumer_group: str | None = wire("consumerGroup", None)
