"""CONSUME_MESSAGE_DIRECTLY (309): one consumer consumes one stored message now, and returns its listener's result.

An administrator sends it without a body to the broker that stores the message. The broker adds the record and its own
name, and passes it on to the client. The result of an ordered consumer has `order` set. Offsets do not change. Sources:
remoting/protocol/header/ConsumeMessageDirectlyResultRequestHeader.java,
remoting/protocol/body/ConsumeMessageDirectlyResult.java, CMResult.java, client/impl/ClientRemotingProcessor.java
(consumeMessageDirectly), 5.4.0 and 4.9.7.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.model import MessageExt
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int
from pyrmq_core.protocol.java.integers import long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.java.members import flag_member, from_members, member, text_member, to_members
from pyrmq_core.protocol.messages.payload import single_message


@dataclass(frozen=True, slots=True)
class ConsumeMessageDirectly:
    """A request to consume a message. `msg_id` is its offset message id, `record` its stored record."""

    CODE: ClassVar[RequestCode] = RequestCode.CONSUME_MESSAGE_DIRECTLY
    consumer_group: str = wire("consumerGroup")
    client_id: str | None = wire("clientId", None)
    msg_id: str | None = wire("msgId", None)
    broker_name: str | None = wire("brokerName", None)
    topic: str | None = wire("topic", None)
    topic_sys_flag: int | None = wire_int("topicSysFlag", None)
    group_sys_flag: int | None = wire_int("groupSysFlag", None)
    record: bytes = b""

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self), self.record)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        header = decode_fields(cls, command.ext, "CONSUME_MESSAGE_DIRECTLY (309)")
        return replace(header, record=bytes(command.body))

    def message(self) -> MessageExt:
        return single_message(self.record, self.broker_name or "", "a message to consume directly")


class CMResult(enum.Enum):
    """The listener's result for a message that was consumed directly. The values are Java's names."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    ROLLBACK = "CR_ROLLBACK"
    COMMIT = "CR_COMMIT"
    THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    RETURN_NULL = "CR_RETURN_NULL"


@dataclass(frozen=True, slots=True)
class ConsumeDirectlyResult:
    """The answer to `ConsumeMessageDirectly`: the listener's result and duration. `remark` describes an exception."""

    order: bool = member("order", False, flag_member)
    auto_commit: bool = member("autoCommit", True, flag_member)
    consume_result: CMResult | None = member("consumeResult", None, CMResult)  # noqa: RUF009 - a field
    remark: str | None = member("remark", None, text_member)
    spent_time_ms: int = member("spentTimeMills", 0, long_member)

    def to_command(self) -> Command:
        members: dict[str, Any] = to_members(self)
        if self.consume_result is not None:
            members["consumeResult"] = self.consume_result.value
        return success(body=dumps(members))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "result of consuming")
        try:
            return from_members(cls, members)
        except ValueError as error:
            raise BodyError(f"result of consuming: a member is of the wrong type: {error}") from error
