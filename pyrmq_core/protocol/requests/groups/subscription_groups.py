"""Consumer groups and their settings: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)
and DELETE_SUBSCRIPTIONGROUP (207).

The settings are the JSON body of request 200. Members that this library does not know are read, and written unchanged.
4.9 has neither `consumeMessageOrderly`, `groupRetryPolicy`, `consumeTimeoutMinute` nor attributes. Request 207 deletes
offsets by `removeOffset` in 4.9, and by `cleanOffset` in 5.x.
Sources: remoting/protocol/subscription/SubscriptionGroupConfig.java,
remoting/protocol/body/SubscriptionGroupWrapper.java,
remoting/protocol/header/DeleteSubscriptionGroupRequestHeader.java, 5.4.0 and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.java.members import flag_member, from_members, member, text_member, to_members

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SubscriptionGroupConfig:
    """A consumer group's settings at one broker. `others` has JSON members of later releases, unchanged."""

    group_name: str = member("groupName", "", text_member)
    consume_enable: bool = member("consumeEnable", True, flag_member)
    consume_from_min_enable: bool = member("consumeFromMinEnable", True, flag_member)
    consume_broadcast_enable: bool = member("consumeBroadcastEnable", True, flag_member)
    consume_message_orderly: bool = member("consumeMessageOrderly", False, flag_member)
    retry_queue_nums: int = member("retryQueueNums", 1, int_member)
    retry_max_times: int = member("retryMaxTimes", 16, int_member)
    broker_id: int = member("brokerId", 0, long_member)
    which_broker_when_consume_slowly: int = member("whichBrokerWhenConsumeSlowly", 1, long_member)
    notify_consumer_ids_changed_enable: bool = member("notifyConsumerIdsChangedEnable", True, flag_member)
    others: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    def to_members(self) -> dict[str, Any]:
        return {**self.others, **to_members(self)}

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        config = from_members(cls, members)
        others = {name: value for name, value in members.items() if name not in to_members(config)}
        return cls(**{name: getattr(config, name) for name in FIELDS}, others=others)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "settings of a group")
        try:
            return cls.from_members(members)
        except (TypeError, ValueError) as error:
            raise BodyError(f"settings of a group: {error}") from error


FIELDS: Final = tuple(name for name in SubscriptionGroupConfig.__dataclass_fields__ if name != "others")


@dataclass(frozen=True, slots=True)
class UpdateSubscriptionGroup:
    """A request to create a group or to change its settings."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    config: SubscriptionGroupConfig

    def to_command(self) -> Command:
        return Command(self.CODE, body=dumps(self.config.to_members()))


@dataclass(frozen=True, slots=True)
class GetAllSubscriptionGroups(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG


@dataclass(frozen=True, slots=True)
class AllSubscriptionGroups:
    groups: Mapping[str, SubscriptionGroupConfig]

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "groups")
        try:
            table = members.get("subscriptionGroupTable") or {}
            return cls({name: SubscriptionGroupConfig.from_members(config) for name, config in table.items()})
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"groups: a member is of the wrong type: {error!r}") from error


@dataclass(frozen=True, slots=True)
class DeleteSubscriptionGroup(HeaderRequest):
    """A request to delete a group. `clean_offset` (5.x) and `remove_offset` (4.9) delete its offsets too."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group_name: str = wire("groupName")
    clean_offset: bool = wire("cleanOffset", False)
    remove_offset: bool = wire("removeOffset", False)
