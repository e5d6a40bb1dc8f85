"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): records of one queue from an offset on.

Supported: every header field. Request 361 is the same with a newer code, which 4.9 does not know.
Sources: remoting/protocol/header/PullMessageRequestHeader.java, PullMessageResponseHeader.java,
common/sysflag/PullSysFlag.java.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.framing.headers import LazyFields
from pyrmq_core.protocol.framing.lent_answer import LentAnswer
from pyrmq_core.protocol.java.integers import parse_long


class PullSysFlag(enum.IntFlag):
    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


# The codes of answers with offsets. Every other code is a refusal.
PULL_ANSWERS: Final = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)


# The fields that an answer must have (@CFNotNull in PullMessageResponseHeader.java).
REQUIRED_FIELDS: Final = ("nextBeginOffset", "minOffset", "maxOffset")
# The three offsets in the order in which brokers of 4.9 and 5.x write them. No field's value can match, since quotes in
# values are escaped.
_OFFSETS: Final = rb'"nextBeginOffset":"(-?\d{1,18})","maxOffset":"(-?\d{1,18})","minOffset":"(-?\d{1,18})"'
_FIND_OFFSETS: Final = re.compile(_OFFSETS).search
# No usual field before the offsets has an `n` in its name, so `[^{}n]` ends where the offsets begin.
PULL_ANSWER_FORM: Final = re.compile(
    rb'\{"code":0,"extFields":\{[^{}n]{0,400}' + _OFFSETS + rb'[^{}]{0,400}\},"flag":1,"language":"\w{1,16}",'
    rb'"opaque":(\d{1,9}),(?:"remark":"\w{0,80}",)?"serializeTypeCurrentRPC":"JSON","version":\d{1,6}\}'
)


def pull_offsets(answer: Command) -> tuple[int, int, int] | None:
    """Returns an answer's next, maximum and minimum offset, or None unless all three are whole numbers.

    An unparsed header stays unparsed: a search for the offsets is faster.
    """
    if answer.__class__ is LentAnswer:
        following, maximum, minimum, _ = answer.numbers
        return following, maximum, minimum
    ext = answer.ext
    if type(ext) is LazyFields and (match := _FIND_OFFSETS(ext.raw)):
        return int(match[1]), int(match[2]), int(match[3])
    try:
        return parse_long(ext["nextBeginOffset"]), parse_long(ext["maxOffset"]), parse_long(ext["minOffset"])
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class PullMessage(HeaderRequest):
    """A request for the records of a queue from `queue_offset` on.

    With the bit SUSPEND in `sys_flag`, a broker waits at most `suspend_timeout_ms` for a new message before it answers.
    `subscription` is used only with the bit SUBSCRIPTION. Consumers that sent their subscription in a heartbeat leave
    it out.
    """

    CODE: ClassVar[RequestCode] = RequestCode.PULL_MESSAGE
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    queue_offset: int = wire("queueOffset")
    max_msg_nums: int = wire_int("maxMsgNums")
    sys_flag: int = wire_int("sysFlag", PullSysFlag.SUBSCRIPTION)
    commit_offset: int = wire("commitOffset", 0)
    suspend_timeout_ms: int = wire("suspendTimeoutMillis", 0)
    subscription: str | None = wire("subscription", None)
    sub_version: int = wire("subVersion", 0)
    expression_type: str | None = wire("expressionType", "TAG")
    max_msg_bytes: int | None = wire_int("maxMsgBytes", None)
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """The answer to a pull. `records` has stored records, one directly after another. `code` is in `PULL_ANSWERS`."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    next_begin_offset: int = wire("nextBeginOffset", 0)
    max_offset: int = wire("maxOffset", 0)
    min_offset: int = wire("minOffset", 0)
    suggest_which_broker_id: int = wire("suggestWhichBrokerId", 0)
    offset_delta: int | None = wire("offsetDelta", None)
    topic_sys_flag: int | None = wire_int("topicSysFlag", 0)
    group_sys_flag: int | None = wire_int("groupSysFlag", 0)
    records: bytes | memoryview = b""

    def to_command(self) -> Command:
        return Command(self.code, encode_fields(self), self.records, remark=self.remark)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        """Returns the answer that a response command contains.

        Raises `HeaderError` if an offset is missing, since its default of 0 would make a consumer read the queue from
        the start.
        """
        for name in REQUIRED_FIELDS:
            if name not in command.ext:
                raise HeaderError(f"a PULL_MESSAGE answer ({command.code}) lacks the field {name}")
        answer = decode_fields(cls, command.ext, "PULL_MESSAGE answer")
        for name, value in (("code", command.code), ("remark", command.remark), ("records", command.body)):
            object.__setattr__(answer, name, value)  # allowed, since no other code has the new answer yet
        return answer
