"""END_TRANSACTION (37) of a producer, and RESUME_CHECK_HALF_MESSAGE (323) of an administrator.

By END_TRANSACTION, a producer reports the state of its local transaction to the broker that stores the half message. It
is sent one-way, as in Java. The request's remark is the reason why the local transaction failed. By
RESUME_CHECK_HALF_MESSAGE, an administrator makes the broker check a half message again after it gave up its checks. In
4.9, END_TRANSACTION has no `topic`. Sources: remoting/protocol/header/EndTransactionRequestHeader.java,
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
    """A report of a local transaction's state, after which the broker commits or rolls back the half message.

    `tran_state_table_offset` is the half message's offset in its queue, `commit_log_offset` its offset in the commit
    log. `commit_or_rollback` is a `LocalTransactionState`.
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
    """A request to check a half message again after the broker gave up. `msg_id` is its offset message id."""

    CODE: ClassVar[RequestCode] = RequestCode.RESUME_CHECK_HALF_MESSAGE
    msg_id: str | None = wire("msgId", None)
    topic: str | None = wire("topic", None)

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return decode_fields(cls, command.ext, "RESUME_CHECK_HALF_MESSAGE (323)")
