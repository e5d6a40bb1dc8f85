"""END_TRANSACTION (37) of a producer, and RESUME_CHECK_HALF_MESSAGE (323) of an administrator.

A producer reports the state of its local transaction to the broker of the half message. It sends this one-way, as Java
does: a broker answers a commit and a rollback, and never an unknown state. The request's remark is the reason why a
local transaction failed. An administrator has a half message checked again that the broker gave up after many checks.
In 4.9, END_TRANSACTION has no `topic`. Sources: remoting/protocol/header/EndTransactionRequestHeader.java,
ResumeCheckHalfMessageRequestHeader.java, client/impl/producer/DefaultMQProducerImpl.java (endTransaction), 5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A request to commit or roll back one transaction.

    `tran_state_table_offset` is the half message's offset in its queue, `commit_log_offset` its offset in the commit
    log, `commit_or_rollback` a `LocalTransactionState`.
    """

    CODE: ClassVar[RequestCode] = RequestCode.END_TRANSACTION
    producer_group: str = wire("producerGroup")
    tran_state_table_offset: int = wire("tranStateTableOffset")
    commit_log_offset: int = wire("commitLogOffset")
    commit_or_rollback: int = wire_int("commitOrRollback")
    from_transaction_check: bool | None = wire("fromTransactionCheck", False)
    msg_id: str | None = wire("msgId", None)
    transaction_id: str | None = wire("transactionId", None)
    topic: str | None = wire("topic", None)
    broker_name: str | None = wire("bname", None)
    remark: str | None = None

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self), remark=self.remark)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return replace(decode_fields(cls, command.ext, "END_TRANSACTION (37)"), remark=command.remark)


@dataclass(frozen=True, slots=True)
class ResumeCheckHalfMessage:
    """A request to check a half message again that the broker gave up. `msg_id` is its offset message id."""

    CODE: ClassVar[RequestCode] = RequestCode.RESUME_CHECK_HALF_MESSAGE
    msg_id: str | None = wire("msgId", None)
    topic: str | None = wire("topic", None)

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return decode_fields(cls, command.ext, "RESUME_CHECK_HALF_MESSAGE (323)")
