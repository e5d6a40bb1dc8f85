"""Groups of lite topics (5.5): POP_LITE_MESSAGE (200070), LITE_SUBSCRIPTION_CTL (200071), NOTIFY_UNSUBSCRIBE_LITE
(200073).

A client subscribes to lite topics of its group's parent topic, and pops from all of them. Messages of a lite topic are
popped in order: a broker returns further ones only after the earlier ones are acknowledged or visible again. The answer
to a pop is that of POP_MESSAGE, but of its three texts about queues only `orderCountInfo` is set. A record's offset in
its lite topic is among its properties. In requests 200051 and 200053, `liteTopic`, queue 0 and this offset name a
message.

A request for a subscription has several changes, each with its action:

    PARTIAL_ADD, PARTIAL_REMOVE    adds or removes lite topics, and may move the group's offset in them
    COMPLETE_ADD                   sets all lite topics of the client, and renews them for 3 minutes
    COMPLETE_REMOVE                removes the client

In an exclusive group, each lite topic has one subscriber. By notice 200073, a broker informs a client that another
client took over a lite topic. Sources:
remoting/protocol/header/PopLiteMessageRequestHeader.java, common/lite/LiteSubscriptionDTO.java, OffsetOption.java,
broker/processor/PopLiteMessageProcessor.java (transformOrderCountInfo), 5.5.0.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from pyrmq_core.errors import BodyError, HeaderError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.integers import long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.requests.pop.pop_message import ENTRY_SEPARATOR

# Attributes of a group: `BIND_TOPIC` is its parent topic. `SUB_MODEL` is `Exclusive` if each lite topic may have only
# one subscriber. `WILDCARD`, with any value, subscribes each client to all lite topics. RESETs are true or false.
BIND_TOPIC: Final = "lite.bind.topic"
SUB_MODEL: Final = "lite.sub.model"
EXCLUSIVE: Final = "Exclusive"
WILDCARD: Final = "lite.sub.wildcard"
RESET_IN_EXCLUSIVE: Final = "lite.sub.reset.offset.exclusive"
RESET_ON_UNSUBSCRIBE: Final = "lite.sub.reset.offset.unsubscribe"
# A server refuses larger requests, since other tasks wait while it reads one.
MOST_BYTES: Final = 1 << 20
MOST_NAMES: Final = 10_000
# One entry of `orderCountInfo`: how often a message was popped before, with or without the message's offset.
TRIES: Final = re.compile(r"(?:0 qo0%(?P<offset>\d{1,18}) )?(?P<tries>\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PopLiteMessage(HeaderRequest):
    """A request for up to `max_messages` messages of the lite topics to which the client subscribes."""

    CODE: ClassVar[RequestCode] = RequestCode.POP_LITE_MESSAGE
    client_id: str = wire("clientId")
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    max_messages: int = wire_int("maxMsgNum")
    invisible_ms: int = wire("invisibleTime")
    poll_time_ms: int = wire("pollTime")
    born_time_ms: int = wire("bornTime")
    attempt_id: str | None = wire("attemptId", None)
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class NotifyUnsubscribeLite(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.NOTIFY_UNSUBSCRIBE_LITE
    lite_topic: str = wire("liteTopic")
    consumer_group: str = wire("consumerGroup")
    client_id: str = wire("clientId")


class LiteAction(enum.StrEnum):
    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"
    COMPLETE_REMOVE = "COMPLETE_REMOVE"


@dataclass(frozen=True, slots=True)
class LiteStart:
    """The offset from which a group reads a lite topic after a subscription to it.

    `kind` is POLICY, OFFSET, TAIL_N or TIMESTAMP. The values of POLICY are 0 for no change, 1 for the first offset and
    2 for the offset after the last message.
    """

    kind: str
    value: int


FIRST: Final = LiteStart("POLICY", 1)
LAST: Final = LiteStart("POLICY", 2)


@dataclass(frozen=True, slots=True)
class LiteChange:
    action: LiteAction
    client_id: str
    group: str
    topic: str
    lite_topics: tuple[str, ...] = ()
    start: LiteStart | None = None

    def to_members(self) -> dict[str, Any]:
        members: dict[str, Any] = {
            "action": self.action.value,
            "clientId": self.client_id,
            "group": self.group,
            "liteTopicSet": self.lite_topics,
            "topic": self.topic,
        }
        if self.start is not None:
            members["offsetOption"] = {"type": self.start.kind, "value": self.start.value}
        return members

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        client_id, group, topic = (members.get(name) or "" for name in ("clientId", "group", "topic"))
        names, option = members.get("liteTopicSet") or (), members.get("offsetOption")
        if not isinstance(names, list | tuple):
            raise TypeError("the lite topics are no list")
        if not all(isinstance(text, str) for text in (client_id, group, topic, *names)):
            raise TypeError("a name is no text")
        start = None if option is None else LiteStart(str(option["type"]), long_member(option.get("value") or 0))
        return cls(LiteAction(members["action"]), client_id, group, topic, tuple(dict.fromkeys(names)), start)


@dataclass(frozen=True, slots=True)
class LiteSubscriptionCtl:
    CODE: ClassVar[RequestCode] = RequestCode.LITE_SUBSCRIPTION_CTL
    changes: tuple[LiteChange, ...]

    def to_command(self) -> Command:
        return Command(self.CODE, body=dumps({"subscriptionSet": [change.to_members() for change in self.changes]}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        """Returns the changes in a request. Raises `BodyError` for a malformed or too large body, or too many names."""
        if len(command.body) > MOST_BYTES:
            raise BodyError(
                f"subscriptions of lite topics have more than {MOST_BYTES} bytes: divide them among clients"
            )
        members = load_object(command.body, "subscriptions of lite topics")
        try:
            rows = members.get("subscriptionSet") or ()
            if (names := sum(len(row.get("liteTopicSet") or ()) for row in rows)) > MOST_NAMES:
                raise BodyError(
                    f"subscriptions to {names} lite topics are more than {MOST_NAMES}: divide them among clients"
                )
            return cls(tuple(LiteChange.from_members(row) for row in rows))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"subscriptions of lite topics: a member is missing or wrong: {error!r}") from error


def write_lite_tries(tries: Mapping[int, int], offsets: Sequence[int]) -> str:
    """Returns the part of `orderCountInfo` about the messages of one lite topic."""
    return ENTRY_SEPARATOR.join(str(tries.get(offset, 0)) for offset in offsets)


def read_lite_tries(text: str, topics: Sequence[Sequence[int]]) -> list[dict[int, int]]:
    """Returns, for each lite topic in an answer, how often its messages were popped before, by offset.

    `topics` has the offsets of the popped messages of each lite topic. For a lite topic RocketMQ writes a number for
    each message, or an offset and a number only for those popped before. Raises `HeaderError` for a malformed text.
    """
    entries = []
    for entry in text.split(ENTRY_SEPARATOR) if text else ():
        if (match := TRIES.fullmatch(entry)) is None:
            raise HeaderError(f"POP_LITE_MESSAGE answer: orderCountInfo has the entry {entry[:80]!r}")
        entries.append((match["offset"], int(match["tries"])))
    tables, at = [], 0
    for offsets in topics:
        tries: dict[int, int] = {}
        if at < len(entries) and entries[at][0] is None:
            tries = dict(zip(offsets, (number for _, number in entries[at : at + len(offsets)]), strict=False))
            at += len(offsets)
        while at < len(entries) and (key := entries[at][0]) is not None and int(key) in set(offsets) - tries.keys():
            tries[int(key)] = entries[at][1]
            at += 1
        tables.append(tries)
    return tables
