"""CHECK_TRANSACTION_STATE (39): a broker queries a producer of the group for the state of a half message's transaction.

The broker sends it one-way, over the connection on which the producer sent its heartbeat. The producer then sends
END_TRANSACTION (37) to that broker. The body is the half message as a stored record, with the topic and queue to which
it was sent. 4.9 sends neither `topic` nor `bname`. Sources:
remoting/protocol/header/CheckTransactionStateRequestHeader.java, client/impl/ClientRemotingProcessor.java
(checkTransactionState), 5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pyrmq_core.model import MessageExt
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire
from pyrmq_core.protocol.messages.payload import single_message


@dataclass(frozen=True, slots=True)
class CheckTransactionState:
    """A broker's query for the state of a transaction. The producer's END_TRANSACTION repeats both its offsets."""

    CODE: ClassVar[RequestCode] = RequestCode.CHECK_TRANSACTION_STATE
    tran_state_table_offset: int = wire("tranStateTableOffset")
    commit_log_offset: int = wire("commitLogOffset")
    msg_id: str | None = wire("msgId", None)
    transaction_id: str | None = wire("transactionId", None)
    offset_msg_id: str | None = wire("offsetMsgId", None)
    topic: str | None = wire("topic", None)
    broker_name: str | None = wire("bname", None)
    record: bytes = b""

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self), self.record)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return replace(decode_fields(cls, command.ext, "CHECK_TRANSACTION_STATE (39)"), record=bytes(command.body))

    def message(self) -> MessageExt:
        return single_message(self.record, self.broker_name or "", "a transaction check")
