"""Sends under way and their ends: of one message (`PendingSend`) and of a list (`PendingBatch`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import trio

from pyrmq_core.client.producer.bulk.unseen_failures import UnseenFailure, UnseenFailures
from pyrmq_core.client.producer.send.receipt import Receipt, SendResults
from pyrmq_core.client.producer.send.send_state import SendState
from pyrmq_core.errors import RocketMQError, SendFailed
from pyrmq_core.model import SendResult

log = logging.getLogger(__name__)

# A caller that reads many results that are there lets others run this often: each time costs a turn of the loop.
READS_BETWEEN_CHECKPOINTS: Final = 16

R = TypeVar("R")


class Pending(Generic[R]):
    """A send under way, and later its result; with `failures` an end as failed is reported if nothing looks at it."""

    __slots__ = ("_callbacks", "_error", "_failures", "_result", "_unseen", "_waited", "is_done")

    _reads: ClassVar[int] = 0  # of results that were there already

    def __init__(self, failures: UnseenFailures | None = None) -> None:
        self.is_done = False
        self._failures = failures
        self._unseen: UnseenFailure | None = None
        self._waited: trio.Event | None = None
        self._result: R | None = None
        self._error: RocketMQError | None = None
        self._callbacks: list[Callable[[Any], object]] | None = None

    async def wait(self) -> R:
        """Returns the result when the send has ended; raises the error of a failed one, each time it is called."""
        if self.is_done:
            Pending._reads += 1
            if Pending._reads % READS_BETWEEN_CHECKPOINTS:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await trio.lowlevel.checkpoint()
        else:
            if self._waited is None:
                self._waited = trio.Event()
            await self._waited.wait()
        return self.result

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Has `callback` called on the loop when the send ends, or now if it has. Logs its exceptions, as Java does."""
        if self.is_done:
            self._call(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    @property
    def result(self) -> R:
        """The result of a send that has ended; raises the error of one that failed."""
        if self._result is None:
            self._look()
            if self._error is not None:
                raise self._error
        assert self._result is not None, "the send is still under way"
        return self._result

    @property
    def error(self) -> RocketMQError | None:
        """The error of a send that has ended; None if it succeeded."""
        if self._result is None:
            self._look()
        return self._error

    def set_error(self, error: RocketMQError) -> None:
        """Ends the send as failed, unless it has ended."""
        if not self.is_done:
            self._error = error
            if self._failures is not None and not self._is_awaited():
                self._unseen = self._failures.failed(error)
            self._end()

    def _is_awaited(self) -> bool:
        return self._waited is not None and self._waited.statistics().tasks_waiting > 0

    def _look(self) -> None:
        """Sets what is still to be parsed of the answer, and notes that the program looks at the end."""
        self._read()
        if self._unseen is not None:
            self._unseen.look()

    def _read(self) -> None:
        """Sets what is still to be parsed of the answer."""

    def _end(self) -> None:
        self.is_done = True
        if self._waited is not None:
            self._waited.set()
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            self._call(callback)

    def _call(self, callback: Callable[[Any], object]) -> None:
        """Calls it, and logs what it raises: other sends, and the loop, go on."""
        try:
            callback(self)
        except Exception:
            log.exception("a done callback of a send raised; the send itself has ended as it did")


class PendingSend(Pending[SendResult]):
    """A message under way, and later its result."""

    __slots__ = ("_index", "_results", "state")

    def __init__(self, failures: UnseenFailures | None = None) -> None:  # sets all slots itself: one for every message
        self.is_done = False
        self._failures = failures
        self._waited = self._result = self._error = self._callbacks = self._unseen = None
        self.state: SendState | None = None
        self._results: Receipt | SendResults | None = None
        self._index = 0

    def begun(self, state: SendState) -> None:
        """Keeps the state, and the payload with it, while the send is under way; the result may be kept much longer."""
        if not self.is_done:
            self.state = state

    def _read(self) -> None:
        results, self._results = self._results, None
        if results is None:
            return
        try:
            self._result = results.result() if isinstance(results, Receipt) else results[self._index]
        except SendFailed as unreadable:
            self._error = unreadable

    def _end(self) -> None:
        self.state = None
        super()._end()


def end_stored(pendings: Sequence[PendingSend], results: Receipt | SendResults) -> None:
    """Ends the sends as stored; the acknowledgement is parsed when a `result` is first read."""
    for index, pending in enumerate(pendings):
        if not pending.is_done:
            pending._results, pending._index = results, index
            pending.is_done, pending.state = True, None
            if pending._waited is not None or pending._callbacks is not None:
                pending._end()


class PendingBatch(Pending[Sequence[SendResult]]):
    """A list of messages under way, and later one result a message, in order."""

    __slots__ = ()

    def set_results(self, results: Sequence[SendResult]) -> None:
        """Ends the send as stored, unless it has ended."""
        if not self.is_done:
            self._result = results
            self._end()
