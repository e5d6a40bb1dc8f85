"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and CHANGE_MESSAGE_INVISIBLETIME (200053).

The first two acknowledge popped messages, the third changes the time at which one becomes visible again. `topic` is the
topic that stores the message, which may be a retry topic (`Receipt.real_topic`). A batch has the popped topic instead,
and a mark: a digit that says whether that topic or a retry topic stores the message. A message whose time was changed
gets a new receipt, made of the old one and the answer. 5.5 adds `liteTopic` and `suspend`, which is supported only for
lite topics. For an offset beyond the queue the answer is NO_MESSAGE (208). Sources:
remoting/protocol/header/AckMessageRequestHeader.java, ChangeInvisibleTimeRequestHeader.java,
ChangeInvisibleTimeResponseHeader.java, remoting/protocol/body/BatchAckMessageRequestBody.java, BatchAck.java, 5.4.0.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.requests.pop.receipt import MOST_SPREAD, Receipt

# The longest body of a batch, and the most messages in it: far more than clients send.
MAX_BATCH_BYTES: Final = 1 << 20
MOST_ACKS: Final = 8192
NOT_ZERO: Final = re.compile(rb"[^\0]")


@dataclass(frozen=True, slots=True)
class AckMessage(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.ACK_MESSAGE
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    extra_info: str = wire("extraInfo")
    offset: int = wire("offset")
    broker_name: str | None = wire("bname", None)
    lite_topic: str | None = wire("liteTopic", None)


@dataclass(frozen=True, slots=True)
class ChangeInvisibleTime(HeaderRequest):
    """A request to make a popped message visible to the group again after `invisible_ms`, counted from now.

    The invisible time of the receipt in `extra_info` must not have ended. With `suspend`, the pop of a lite topic is
    undone: all its messages become visible together, and the pop does not count as a try.
    """

    CODE: ClassVar[RequestCode] = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    extra_info: str = wire("extraInfo")
    offset: int = wire("offset")
    invisible_ms: int = wire("invisibleTime")
    broker_name: str | None = wire("bname", None)
    lite_topic: str | None = wire("liteTopic", None)
    suspend: bool | None = wire("suspend", None)


@dataclass(frozen=True, slots=True)
class InvisibleTimeChanged(HeaderResponse):
    pop_time_ms: int = wire("popTime")
    invisible_ms: int = wire("invisibleTime")
    revive_queue_id: int = wire_int("reviveQid")

    def receipt(self, before: Receipt) -> Receipt:
        """Returns the message's new receipt. `before` is the receipt in the request."""
        return replace(
            before,
            start_offset=before.queue_offset,
            pop_time_ms=self.pop_time_ms,
            invisible_ms=self.invisible_ms,
            revive_queue_id=self.revive_queue_id,
        )


@dataclass(frozen=True, slots=True)
class AckEntry:
    """Acknowledgements of messages that one pop returned from one queue, with their offsets in rising order."""

    consumer_group: str
    topic: str
    mark: str
    start_offset: int
    queue_id: int
    revive_queue_id: int
    pop_time_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]

    def to_members(self) -> dict[str, Any]:
        bits = sum(1 << offset - self.start_offset for offset in self.offsets)
        return {
            "b": base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode("ascii"),
            "c": self.consumer_group,
            "it": self.invisible_ms,
            "pt": self.pop_time_ms,
            "q": self.queue_id,
            "r": self.mark,
            "rq": self.revive_queue_id,
            "so": self.start_offset,
            "t": self.topic,
        }

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        start_offset = long_member(members["so"])
        return cls(
            consumer_group=str(members["c"]),
            topic=str(members["t"]),
            mark=str(members["r"]),
            start_offset=start_offset,
            queue_id=int_member(members["q"]),
            revive_queue_id=int_member(members["rq"]),
            pop_time_ms=long_member(members["pt"]),
            invisible_ms=long_member(members["it"]),
            offsets=tuple(start_offset + bit for bit in _bits(members["b"])),
        )


@dataclass(frozen=True, slots=True)
class BatchAckMessage:
    """Acknowledgements of messages of one broker. The answer does not say which of them the broker accepted."""

    CODE: ClassVar[RequestCode] = RequestCode.BATCH_ACK_MESSAGE
    broker_name: str
    entries: tuple[AckEntry, ...]

    def to_command(self) -> Command:
        members = {"acks": [entry.to_members() for entry in self.entries], "brokerName": self.broker_name}
        return Command(self.CODE, body=dumps(members))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        if len(command.body) > MAX_BATCH_BYTES:
            raise BodyError(f"acknowledgements: {len(command.body)} bytes are more than {MAX_BATCH_BYTES}")
        members = load_object(command.body, "acknowledgements")
        entries: list[AckEntry] = []
        left = MOST_ACKS
        try:
            for row in members.get("acks") or ():
                entries.append(AckEntry.from_members(row))
                left -= max(1, len(entries[-1].offsets))
                if left < 0:
                    raise ValueError(f"there are more than {MOST_ACKS}")
            return cls(str(members.get("brokerName") or ""), tuple(entries))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BodyError(f"acknowledgements: a member is missing or of the wrong type: {error!r}") from error


def ack_entries(topic: str, group: str, receipts: Iterable[Receipt]) -> tuple[AckEntry, ...]:
    """Returns the acknowledgements of messages that `group` popped from `topic`: one entry for each pop and queue."""
    offsets: dict[tuple[str, int, int, int, int, int], set[int]] = {}
    for receipt in receipts:
        times = receipt.pop_time_ms, receipt.invisible_ms
        key = (receipt.mark, receipt.start_offset, receipt.queue_id, receipt.revive_queue_id, *times)
        if (numbers := offsets.get(key)) is None:
            numbers = offsets[key] = set()
        numbers.add(receipt.queue_offset)
    return tuple(AckEntry(group, topic, *key, tuple(sorted(numbers))) for key, numbers in offsets.items())


def _bits(text: object) -> list[int]:
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} is no text")
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError(f"the bits are not base64: {error}") from error
    if len(data) * 8 > MOST_SPREAD:
        raise ValueError(f"{len(data)} bytes of bits are more than {MOST_SPREAD // 8}")
    # Reads byte by byte, since shifts of one large number would take quadratic time.
    places = ((match.start(), match[0][0]) for match in NOT_ZERO.finditer(data))
    return [8 * at + bit for at, byte in places for bit in range(8) if byte >> bit & 1]
