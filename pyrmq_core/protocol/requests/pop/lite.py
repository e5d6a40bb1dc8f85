"""Groups of lite topics (5.5): POP_LITE_MESSAGE (200070), LITE_SUBSCRIPTION_CTL (200071), NOTIFY_UNSUBSCRIBE_LITE
(200073).

A client subscribes to lite topics of its group's parent topic, under a client id of its own, and pops from all of them.
Messages of a lite topic come in their order: further ones are popped when those before are acknowledged or visible
again. The answer to a pop is that of POP_MESSAGE, with `orderCountInfo` alone. A record's offset in its lite topic is
among its properties. Messages are settled by 200051 and 200053, with `liteTopic`, queue 0 and this offset.

Each change of a subscription is applied on its own, and names another action:

    PARTIAL_ADD, PARTIAL_REMOVE    adds or removes lite topics, and may move the group's offset in them
    COMPLETE_ADD                   sets all lite topics of the client, and renews them for 3 minutes
    COMPLETE_REMOVE                removes the client

The notice 200073 says to a client of an exclusive group that another one took over a lite topic. Sources:
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

# Attributes of a group: its parent topic, `Exclusive` for one subscriber of each lite topic, and, whatever its value, a
# subscription of every client to all lite topics. The other two are true or false.
BIND_TOPIC: Final = "lite.bind.topic"
SUB_MODEL: Final = "lite.sub.model"
EXCLUSIVE: Final = "Exclusive"
WILDCARD: Final = "lite.sub.wildcard"
RESET_IN_EXCLUSIVE: Final = "lite.sub.reset.offset.exclusive"
RESET_ON_UNSUBSCRIBE: Final = "lite.sub.reset.offset.unsubscribe"
# The most that a server reads of one request, which it does while others wait.
MOST_BYTES: Final = 1 << 20
MOST_NAMES: Final = 10_000
# The number of earlier tries of a message: alone, or with the message's offset.
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
    """The offset to which a subscription moves its group. `kind` is POLICY, OFFSET, TAIL_N or TIMESTAMP.

    The values of POLICY are 0 for no change, 1 for the first offset and 2 for the offset behind the last message.
    """

    kind: str
    value: int


FIRST: Final = LiteStart("POLICY", 1)
LAST: Final = LiteStart("POLICY", 2)


@dataclass(frozen=True, slots=True)
class LiteChange:
    """A change of the lite topics to which a group's client subscribes."""

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
        """Reads the changes of a request. Raises `BodyError` for a malformed body, or one with too much in it."""
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

    `topics` has the offsets of the popped messages. RocketMQ writes one number for each message of a lite topic, or
    only the messages that were popped before, each with its offset. Raises `HeaderError` for a malformed text.
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
