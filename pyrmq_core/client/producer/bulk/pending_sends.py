"""Background sends of one message (`PendingSend`) or a list (`PendingBatch`), and the limit on them (`InFlight`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import trio

from pyrmq_core.client.arguments import whole_number
from pyrmq_core.client.producer.bulk.unseen_failures import UnseenFailure, UnseenFailures
from pyrmq_core.client.producer.send.background_sends import BackgroundSends
from pyrmq_core.client.producer.send.receipt import Receipt, SendResults, given_up, unexpected
from pyrmq_core.client.producer.send.send_options import CommunicationMode, SendState, Target
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.errors import RocketMQError, SendFailed, WindowFull
from pyrmq_core.model import SendResult
from pyrmq_core.network import ON_LOOP, LoopAccess
from pyrmq_core.protocol.messages.payload import Payload

log = logging.getLogger(__name__)

# A caller that reads many finished results lets other tasks run after this many, each time at the cost of a loop round.
READS_BETWEEN_CHECKPOINTS: Final = 16

R = TypeVar("R")


class Pending(Generic[R]):
    """A background send, and later its result. With `failures`, a failure that the program never reads is logged."""

    __slots__ = ("_callbacks", "_error", "_failures", "_result", "_unseen", "_waited", "is_done")

    _reads: ClassVar[int] = 0  # results that were read without a wait

    def __init__(self, failures: UnseenFailures | None = None) -> None:
        self.is_done = False
        self._failures = failures
        self._unseen: UnseenFailure | None = None
        self._waited: trio.Event | None = None
        self._result: R | None = None
        self._error: RocketMQError | None = None
        self._callbacks: list[Callable[[Any], object]] | None = None

    async def wait(self) -> R:
        """Returns the result when the send has ended. If the send failed, each call raises its error."""
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
        """Calls `callback` on the loop when the send ends, or now if it has. Logs the callback's errors, as in Java."""
        if self.is_done:
            self._call(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    @property
    def result(self) -> R:
        """The result of a send that has ended (`is_done`). Raises the error of a failed send."""
        if self._result is None:
            self._look()
            if self._error is not None:
                raise self._error
        assert self._result is not None, "the send is still under way"
        return self._result

    @property
    def error(self) -> RocketMQError | None:
        """The error of a failed send. It is None if the send succeeded or has not ended."""
        if self._result is None:
            self._look()
        return self._error

    def set_error(self, error: RocketMQError) -> None:
        """Ends the send with an error, unless it has ended."""
        if not self.is_done:
            self._error = error
            if self._failures is not None and not self._is_awaited():
                self._unseen = self._failures.failed(error)
            self._end()

    def _is_awaited(self) -> bool:
        return self._waited is not None and self._waited.statistics().tasks_waiting > 0

    def _look(self) -> None:
        self._read()
        if self._unseen is not None:
            self._unseen.look()

    def _read(self) -> None: ...

    def _end(self) -> None:
        self.is_done = True
        if self._waited is not None:
            self._waited.set()
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            self._call(callback)

    def _call(self, callback: Callable[[Any], object]) -> None:
        try:
            callback(self)
        except Exception:
            log.exception("a done callback of a send raised; the send itself has ended as it did")


class PendingSend(Pending[SendResult]):
    """The background send of one message, and later its result."""

    __slots__ = ("_index", "_results", "state")

    def __init__(self, failures: UnseenFailures | None = None) -> None:  # sets all slots itself, which is faster
        self.is_done = False
        self._failures = failures
        self._waited = self._result = self._error = self._callbacks = self._unseen = None
        self.state: SendState | None = None
        self._results: Receipt | SendResults | None = None
        self._index = 0

    def begun(self, state: SendState) -> None:
        """Keeps the send's state until its end, so that `InFlight.give_up` can withdraw the request."""
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
    """Ends the sends of stored messages. Each gets its part of the `results`, parsed when it is first read."""
    for index, pending in enumerate(pendings):
        if not pending.is_done:
            pending._results, pending._index = results, index
            pending.is_done, pending.state = True, None
            if pending._waited is not None or pending._callbacks is not None:
                pending._end()


class PendingBatch(Pending[Sequence[SendResult]]):
    """The background send of a list of messages, and later one result for each, in order."""

    __slots__ = ()

    def set_results(self, results: Sequence[SendResult]) -> None:
        """Ends the send with its results, unless it has ended."""
        if not self.is_done:
            self._result = results
            self._end()


# A caller that never waits for room lets other tasks run after so many calls, about once a millisecond. Each time costs
# a round of the loop, four times as much as a call that adds its message to a batch.
CALLS_BETWEEN_CHECKPOINTS: Final = 64
BATCHED_CALLS_BETWEEN_CHECKPOINTS: Final = 256
# Closing a producer waits this much longer than the timeout of the longest open send.
DRAIN_GRACE_SECONDS: Final = 5.0


def check_bounds(max_count: int, max_bytes: int) -> tuple[int, int]:
    return whole_number("max_in_flight", max_count, 1), whole_number("max_in_flight_bytes", max_bytes, 1, 2**63 - 1)


class InFlight:
    """The background sends of a producer, limited by number and by bytes, and admitted in the order of their calls.

    A send takes up room until `leave` is called for it. Further calls of `leave` do nothing, so an interrupted caller
    may always call it.
    """

    def __init__(
        self, nursery: trio.Nursery, sender: Sender, max_count: int, max_bytes: int, *, batching: bool = False
    ) -> None:
        self._sends = BackgroundSends(nursery, sender)
        self._lock = threading.Lock()
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._entered: dict[Pending[Any], int] = {}  # the admitted sends with their bytes
        self._bytes = 0  # the sum of the bytes in `_entered`
        self._calls = 0
        self._calls_between = BATCHED_CALLS_BETWEEN_CHECKPOINTS if batching else CALLS_BETWEEN_CHECKPOINTS
        self._turn = trio.Lock()
        self._waiting = 0  # callers that wait for room
        self._ended: trio.Event | None = None

    def enter_nowait(self, pending: Pending[Any], size: int, take_turns: bool = False) -> bool:
        """Reserves room for `size` bytes, from any thread. Returns False if there is none, or others wait for it.

        With `take_turns` it sometimes also returns False: the caller then awaits `enter`, which lets other tasks run.
        """
        if take_turns:
            self._calls += 1
            if not self._calls % self._calls_between:
                return False
        entered = self._entered
        with self._lock:
            count, total = len(entered), self._bytes + size
            if self._waiting or (count and (count >= self._max_count or total > self._max_bytes)):
                return False
            entered[pending] = size
            self._bytes = total
            return True

    async def enter(self, pending: Pending[Any], size: int, *, wait: bool = True) -> None:
        """Waits for room for `size` bytes, in the order of the calls. With `wait=False` raises `WindowFull` instead."""
        if not self.enter_nowait(pending, size):
            if not wait:
                raise self.full()
            self._waiting += 1
            try:
                async with self._turn:
                    while not self._has_room(size):
                        await self._next_end()
                    if pending.is_done:  # the caller gave the send up
                        pending.result  # noqa: B018 - it raises
                    with self._lock:
                        self._entered[pending] = size
                        self._bytes += size
            finally:
                self._waiting -= 1
            return
        try:
            await trio.lowlevel.checkpoint()
        except BaseException:
            self.leave((pending,))
            raise

    def full(self) -> WindowFull:
        return WindowFull(
            f"{len(self._entered)} messages and {self._bytes} bytes are under way, and {self._max_count} and "
            f"{self._max_bytes} may be (max_in_flight, max_in_flight_bytes); wait for some of them"
        )

    def leave(self, pendings: Iterable[Pending[Any]]) -> None:
        with self._lock:
            self._bytes -= sum(map(self._entered.pop, pendings, repeat(0)))
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.set()

    def start(
        self,
        payload: Payload,
        to: Target,
        timeout: float,
        pendings: Sequence[PendingSend],
        mode: CommunicationMode = CommunicationMode.ASYNC,
        loop: LoopAccess = ON_LOOP,
    ) -> bool:
        """Sends a payload in the background. The `pendings` of its messages receive the results or the error.

        Returns False, with nothing started, if `loop` cannot start it from this thread now (`BackgroundSends.start`).
        """
        ended = partial(self.end, pendings)
        try:
            state = self._sends.start(payload, to, timeout, mode, ended, loop)
        except Exception as error:
            if loop.writes_here:
                raise
            ended(unexpected(payload.topic, error))
            return True
        if state is not None:
            pendings[0].begun(state)
        return state is not None

    def give_up(self, pending: PendingSend, topic: str) -> None:
        """Ends a send whose caller was interrupted. A request that is not written yet is withdrawn."""
        if pending.state is not None:
            self._sends.give_up(pending.state)
        pending.set_error(given_up(topic))
        self.leave((pending,))
        with self._lock:  # the interrupt may have come between the two steps of `enter`
            self._bytes = sum(self._entered.values())

    def longest_seconds(self, now: float) -> float:
        return self._sends.longest_seconds(now)

    async def drain(self) -> None:
        """Waits until all sends have ended, at most for their timeouts and a grace period."""
        seconds = self.longest_seconds(trio.current_time()) + DRAIN_GRACE_SECONDS
        with trio.move_on_after(seconds):
            while self._entered:
                await self._next_end()
        if self._entered:
            log.warning(
                "closing did not wait longer than %.0f s and gave up %d messages that are perhaps stored",
                seconds,
                len(self._entered),
            )

    def abandon(self) -> None:
        """Gives up all open sends, and every send that starts later. It is called when the producer is closed."""
        self._sends.abandon()

    def fail(self, error: RocketMQError) -> None:
        """Ends all sends with the error, after the loop has crashed and without use of it."""
        self._sends.fail(error)
        for pending in list(self._entered):
            self.leave((pending,))
            pending.set_error(error)

    def end(self, pendings: Sequence[PendingSend], end: Receipt | RocketMQError) -> None:
        if self._entered:
            self.leave(pendings)
        results: Receipt | SendResults | RocketMQError = end
        if isinstance(end, Receipt) and len(pendings) > 1:
            try:
                results = end.results()
            except SendFailed as unreadable:
                results = unreadable
        if isinstance(results, RocketMQError):
            for pending in pendings:
                pending.set_error(results)
            return
        end_stored(pendings, results)

    async def _next_end(self) -> None:
        if self._ended is None:
            self._ended = trio.Event()
        await self._ended.wait()

    def _has_room(self, size: int) -> bool:
        count = len(self._entered)
        return count == 0 or (count < self._max_count and self._bytes + size <= self._max_bytes)
