"""A broker's acknowledgement of a send, and the `SendResult` of each message, which is parsed when it is first read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

from pyrmq_core.errors import Attempt, Outcome, ProtocolError, SendFailed
from pyrmq_core.model import MessageQueue, SendResult, SendStatus
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.requests.broker.send_message import MessageStored

_make_result: Final = maker_of(SendResult)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A broker's acknowledgement of a stored payload of `count` messages. `answer` has their queue and first offset.

    `requested` is the queue of the request. The broker may store elsewhere: messages with a priority go to another
    queue of the topic. `attempts` are the failed tries before. If the outcome of one is *perhaps stored*, there may be
    a second copy.
    """

    requested: MessageQueue
    count: int
    status: SendStatus
    attempts: tuple[Attempt, ...]
    answer: Command
    unique_ids: Sequence[str] | None

    @property
    def queue(self) -> MessageQueue:
        try:
            return self._queue(MessageStored.queue_id_of(self.answer))
        except ProtocolError as error:
            raise self._without_place(error) from error

    @property
    def queue_offset(self) -> int:
        try:
            return MessageStored.queue_offset_of(self.answer)
        except ProtocolError as error:
            raise self._without_place(error) from error

    @property
    def perhaps_repeated(self) -> bool:
        return any(attempt.outcome is not Outcome.NOT_STORED for attempt in self.attempts)

    @property
    def trace_on(self) -> bool:
        return self._stored().trace_on != "false"

    def result(self) -> SendResult:
        stored = self._stored()
        offset_id = stored.msg_ids
        return _result(self, stored, 0, offset_id if "," not in offset_id else offset_id.partition(",")[0])

    def results(self) -> SendResults:
        """Returns one result for each message, in order. Bulk writes do not call this, since it parses the answer."""
        return SendResults(self, self._stored())

    def _stored(self) -> MessageStored:
        try:
            return MessageStored.from_command(self.answer)
        except ProtocolError as error:
            raise self._without_place(error) from error

    def _queue(self, queue_id: int) -> MessageQueue:
        requested = self.requested
        if queue_id == requested.queue_id:
            return requested
        return MessageQueue(requested.topic, requested.broker_name, queue_id)

    def _without_place(self, error: ProtocolError) -> SendFailed:
        return SendFailed(
            f"{self.requested.broker_name} acknowledged a send to {self.requested}, but not where it is stored: "
            f"{error}; sending again may store a second copy",
            outcome=Outcome.PERHAPS_STORED,
            attempts=self.attempts,
        )


make_receipt: Final = maker_of(Receipt)


class SendResults(Sequence[SendResult]):
    """The results of one request's messages, in their order. Each result is created when it is read."""

    __slots__ = ("_offset_ids", "_queue", "_receipt", "_stored")

    def __init__(self, receipt: Receipt, stored: MessageStored) -> None:
        self._receipt = receipt
        self._stored = stored
        self._queue = receipt._queue(stored.queue_id)
        offset_ids = stored.msg_ids.split(",")
        # A batch topic of 5.x stores a request as one record, and all its messages share the record's id.
        self._offset_ids = offset_ids if len(offset_ids) == receipt.count else offset_ids[:1] * receipt.count

    def __repr__(self) -> str:
        return repr(list(self))

    def __len__(self) -> int:
        return len(self._offset_ids)

    def __iter__(self) -> Iterator[SendResult]:
        receipt, stored, offset_ids = self._receipt, self._stored, self._offset_ids
        status, queue = receipt.status, self._queue
        shared_fields = (stored.transaction_id, stored.region_id, stored.recall_handle)
        names = zip(receipt.unique_ids or offset_ids, offset_ids, strict=True)
        for offset, (unique_id, offset_id) in enumerate(names, stored.queue_offset):
            yield _make_result(status, unique_id, offset_id, queue, offset, *shared_fields)

    @overload
    def __getitem__(self, index: int) -> SendResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...

    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        offset_id = self._offset_ids[index]
        return _result(self._receipt, self._stored, index if index >= 0 else index + len(self), offset_id)


def _result(receipt: Receipt, stored: MessageStored, index: int, offset_id: str) -> SendResult:
    return _make_result(
        receipt.status,
        receipt.unique_ids[index] if receipt.unique_ids else offset_id,
        offset_id,
        receipt._queue(stored.queue_id),
        stored.queue_offset + index,
        stored.transaction_id,
        stored.region_id,
        stored.recall_handle,
    )


log = logging.getLogger(__name__)


def given_up(topic: str) -> SendFailed:
    return SendFailed(
        f"the producer was closed while a message for {topic} was under way; sending it again may store a second copy",
        outcome=Outcome.PERHAPS_STORED,
        attempts=(),
    )


def unexpected(topic: str, error: Exception) -> SendFailed:
    """Returns the error of a send that ended with an unexpected exception, and logs the exception's traceback."""
    log.error("a send to %s met an unexpected %s", topic, type(error).__name__, exc_info=error)
    failed = SendFailed(
        f"topic {topic}: the send ended with an unexpected {type(error).__name__}: {error}; it is perhaps stored, and "
        "sending it again may store a second copy",
        outcome=Outcome.PERHAPS_STORED,
        attempts=(),
    )
    failed.__cause__ = error
    return failed
