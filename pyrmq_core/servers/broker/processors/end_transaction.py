"""Requests of transactions: END_TRANSACTION (37) commits or rolls back, RESUME_CHECK_HALF_MESSAGE (323) checks again.

A commit stores the message for its consumers. A rollback only records that the transaction has ended. A request with
any other state is refused (RocketMQ does not answer it), and the broker later asks the producer. A second commit of a
message is answered like the first, and delivers nothing. Source: broker/processor/EndTransactionProcessor.java,
AdminBrokerProcessor.java (resumeCheckHalfMessage), 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction, ResumeCheckHalfMessage
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.put_message import MessageWriter, RequestRefused
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.transactions.half_messages import HalfMessage
from pyrmq_core.servers.broker.transactions.transactions import Transactions

NOT_FOUND: Final = "Find prepared transaction message failed"
NOT_RESUMED: Final = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


@dataclass(frozen=True, slots=True)
class TransactionRequests:
    """The handlers of requests to commit or roll back transactions, and to check a half message again."""

    transactions: Transactions
    writer: MessageWriter
    flusher: Flusher
    store: MessageStore

    def handlers(self) -> Handlers:
        return {
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check,
        }

    def end_transaction(self, request: Command, _: Peer) -> Answer:
        end = EndTransaction.from_command(request)
        if end.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            remark = f"nothing is ended: commitOrRollback is {end.commit_or_rollback}, not 8 (commit) or 12 (rollback)"
            return refusal(ResponseCode.SYSTEM_ERROR, remark)
        if self.flusher.is_sync and self.store.flushed <= end.commit_log_offset < self.store.end:
            return self._end_when_flushed(end)
        return self._end(end)

    async def _end_when_flushed(self, end: EndTransaction) -> Command:
        """Ends a transaction once the log is synced, since with SYNC_FLUSH a half message is in its queue only then."""
        await self.flusher.wait_flushed(self.store.end)
        return self._end(end)

    def _end(self, end: EndTransaction) -> Command:
        half = self.transactions.half_at(end.commit_log_offset)
        if half is None:
            return refusal(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        if not end.from_transaction_check and self.transactions.rules.is_end_late(half, clock.now_ms()):
            remark = "the end arrived after CHECK_IMMUNITY_TIME_IN_SECONDS; the producer is queried for it"
            return refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        if fault := _fault(end, half):
            return refusal(ResponseCode.SYSTEM_ERROR, fault)
        if end.commit_or_rollback == TRANSACTION_ROLLBACK:
            self.transactions.roll_back(half, clock.now_ms())
            return success()
        try:
            with self.writer.refusals():
                self.transactions.commit(half, clock.now_ms())
        except RequestRefused as refused:
            return refusal(refused.code, str(refused))
        return success()

    def resume_check(self, request: Command, _: Peer) -> Command:
        """Schedules further checks of a half message, even if it was discarded after too many checks."""
        resume = ResumeCheckHalfMessage.from_command(request)
        try:
            place = decode_offset_msg_id(resume.msg_id or "").offset
        except InvalidArgument as error:
            return refusal(ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} {error}")
        half = self.transactions.half_at(place, or_discarded=True)
        if half is None:
            return refusal(
                ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} {resume.msg_id} is no half message of this broker"
            )
        try:
            with self.writer.refusals():
                self.transactions.resume(half, clock.now_ms())
        except RequestRefused as refused:
            return refusal(ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} {refused}")
        return success()


def _fault(end: EndTransaction, half: HalfMessage) -> str:
    if half.producer_group != end.producer_group:
        return "The producer group wrong"
    if half.queue_offset != end.tran_state_table_offset:
        return "The transaction state table offset wrong"
    return ""
