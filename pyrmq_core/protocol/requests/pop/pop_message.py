"""POP_MESSAGE (200050): requests messages of a topic, which the group's other consumers then do not get for a while.

Supported: every header field of 5.4.0. `PopAnswer.records` has stored records, one directly after another. Three fields
of the answer name the queues and offsets of these records, from which the client makes a receipt for each message:

    field               one entry, of several joined by semicolons
    startOffsetInfo     MARK QUEUE FIRST_OFFSET
    msgOffsetInfo       MARK QUEUE OFFSET,OFFSET,...
    orderCountInfo      MARK QUEUE COUNT, or MARK qoQUEUE%OFFSET COUNT for one message (ordered pops only)

MARK stands for the topic: 0 for the popped topic, 1 or 2 for a retry topic of the older or the newer form. Records of
retry topics that name the popped topic carry their receipt as the property POP_CK. Sources:
remoting/protocol/header/PopMessageRequestHeader.java, PopMessageResponseHeader.java, ExtraInfoUtil.java, 5.4.0.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self, TypeAlias, TypeVar

from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.integers import parse_int, parse_long
from pyrmq_core.protocol.requests.pop.receipt import MARKS, SEPARATOR

# The highest number of messages of one pop (broker/processor/PopMessageProcessor.java).
MOST_MESSAGES: Final = 32
ANY_QUEUE: Final = -1
# Answers without a message: too many requests wait at the broker, or the time of this one ended. The access control of
# 4.9 uses the same numbers with another meaning.
POLLING_FULL: Final = 209
POLLING_TIMEOUT: Final = 210
# The codes of answers to a pop. Any other code is a refusal.
POP_ANSWERS: Final = frozenset((ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, POLLING_FULL, POLLING_TIMEOUT))
ENTRY_SEPARATOR: Final = ";"
MESSAGE_KEY: Final = "qo"
# The topic's mark (`topic_mark`), and the queue id.
QueueKey: TypeAlias = tuple[str, int]
# The topic's mark, the queue id, and the offset of a message, or None for the whole queue.
OrderKey: TypeAlias = tuple[str, int, int | None]
K = TypeVar("K")
V = TypeVar("V")


class InitMode(enum.IntEnum):
    """The offset at which a group without a committed offset begins a queue: the minimum or the maximum."""

    MIN = 0
    MAX = 1


@dataclass(frozen=True, slots=True)
class PopMessage(HeaderRequest):
    """A request for up to `max_msg_nums` messages of one queue, or of `ANY_QUEUE`.

    If no message can be popped, a broker waits for one until `poll_time_ms` after `born_time_ms`, the time of the
    client's clock. When a client repeats an ordered pop, it sends the same `attempt_id`.
    """

    CODE: ClassVar[RequestCode] = RequestCode.POP_MESSAGE
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    max_msg_nums: int = wire_int("maxMsgNums")
    invisible_ms: int = wire("invisibleTime")
    poll_time_ms: int = wire("pollTime")
    born_time_ms: int = wire("bornTime")
    init_mode: int = wire_int("initMode", InitMode.MIN)
    expression_type: str | None = wire("expType", None)
    expression: str | None = wire("exp", None)
    order: bool | None = wire("order", False)
    attempt_id: str | None = wire("attemptId", None)
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class PopAnswer:
    """The answer to a pop: stored records, and texts with their queues and offsets. `code` is in `POP_ANSWERS`."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    pop_time_ms: int = wire("popTime", 0)
    invisible_ms: int = wire("invisibleTime", 0)
    revive_queue_id: int = wire_int("reviveQid", 0)
    rest_num: int = wire("restNum", 0)
    start_offset_info: str | None = wire("startOffsetInfo", None)
    msg_offset_info: str | None = wire("msgOffsetInfo", None)
    order_count_info: str | None = wire("orderCountInfo", None)
    records: bytes | memoryview = b""

    def to_command(self) -> Command:
        return Command(self.code, encode_fields(self), self.records, remark=self.remark)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        answer = decode_fields(cls, command.ext, "POP_MESSAGE answer")
        for name, value in (("code", command.code), ("remark", command.remark), ("records", command.body)):
            object.__setattr__(answer, name, value)  # allowed, since no other code has the new answer yet
        return answer


def write_start_offsets(starts: Mapping[QueueKey, int]) -> str:
    return ENTRY_SEPARATOR.join(f"{mark} {queue} {offset}" for (mark, queue), offset in starts.items())


def read_start_offsets(text: str) -> dict[QueueKey, int]:
    """Returns the first offset of each queue in `startOffsetInfo`. Raises `HeaderError` if the text is malformed."""
    return _table(text, "startOffsetInfo", _queue_key, parse_long)


def write_message_offsets(offsets: Mapping[QueueKey, Sequence[int]]) -> str:
    return ENTRY_SEPARATOR.join(
        f"{mark} {queue} {','.join(map(str, numbers))}" for (mark, queue), numbers in offsets.items()
    )


def write_order_counts(counts: Mapping[OrderKey, int]) -> str:
    return ENTRY_SEPARATOR.join(
        f"{mark} {queue if offset is None else f'{MESSAGE_KEY}{queue}%{offset}'} {count}"
        for (mark, queue, offset), count in counts.items()
    )


def read_order_counts(text: str) -> dict[OrderKey, int]:
    """Returns how often ordered messages were popped before, from `orderCountInfo`.

    A key has the offset of a message, or None for all messages of a queue. Raises `HeaderError` if the text is
    malformed.
    """
    return _table(text, "orderCountInfo", _order_key, parse_int)


def _queue_key(mark: str, queue: str) -> QueueKey:
    return mark, parse_int(queue)


def _order_key(mark: str, key: str) -> OrderKey:
    queue, is_message, offset = key.removeprefix(MESSAGE_KEY).partition("%")
    return mark, parse_int(queue), parse_long(offset) if is_message else None


def _table(text: str, what: str, key_of: Callable[[str, str], K], value_of: Callable[[str], V]) -> dict[K, V]:
    table: dict[K, V] = {}
    for entry in text.split(ENTRY_SEPARATOR) if text else ():
        try:
            mark, name, number = entry.split(SEPARATOR)
            key, value = key_of(mark, name), value_of(number)
        except ValueError as error:
            raise HeaderError(f"POP_MESSAGE answer: {what} has the entry {entry[:80]!r}: {error}") from error
        if mark not in MARKS or key in table:
            raise HeaderError(f"POP_MESSAGE answer: the entry {entry[:80]!r} of {what} is wrong, or there twice")
        table[key] = value
    return table
