"""END_TRANSACTION (37): a producer reports the state of the local transaction to the broker of its half message.

Sent one-way, as Java does: a broker answers a commit and a rollback, and never an unknown state. The request's remark
is the reason why a local transaction failed. Sources: remoting/protocol/header/EndTransactionRequestHeader.java,
client/impl/producer/DefaultMQProducerImpl.java (endTransaction), 5.3.3; 4.9 has no `topic`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The end of one transaction.

    `tran_state_table_offset` is the half message's offset in its queue, `commit_log_offset` its place in the commit
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
