"""`HandlerCalls`: calls a user's handler, and returns the messages that it did not consume, with the reason.

An `async` handler runs on the loop, any other handler in worker threads. A *run* is several short batches that one
worker passes to the handler one after another. This saves thread switches, each as costly as many calls of a fast
handler.
"""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import trio

from pyrmq_core.client.consumer.consume.handler_exceptions import ConsumeLater, NotHandled, SuspendCurrentQueue
from pyrmq_core.client.consumer.consume.hooks import ConsumeContext
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import MessageExt
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.shown_values import shown

log = logging.getLogger(__name__)

Messages = Sequence[MessageExt]
Handler = Callable[[Messages], Awaitable[object]] | Callable[[Messages], object]

# The consumer whose handler runs in the present task or thread.
HANDLING: Final[ContextVar[object]] = ContextVar("pyrmq_handling", default=None)

# A thread takes no further batch after this time, because other threads may be idle.
RUN_SECONDS: Final = 0.005
# The most seconds for which calls of a fast async handler keep other tasks from running.
SLICE_SECONDS: Final = 0.002
MOST_BATCHES_A_RUN: Final = 64


@dataclass(slots=True)
class Outcome:
    """The result of one handler call: the messages that `failed`, and the `reason`, which is an exception or None.

    `later` or `suspend` is the same exception, if it is a `ConsumeLater` or a `SuspendCurrentQueue`. If `left` is True,
    the handler did not get the messages, and they are not sent back to the broker for a retry.
    """

    failed: Messages = ()
    reason: BaseException | None = None
    left: bool = False
    timed_out: bool = False
    later: ConsumeLater | None = None
    suspend: SuspendCurrentQueue | None = None


CONSUMED: Final = Outcome()


@dataclass(eq=False, slots=True)
class CallRun:
    """Batches that one worker passes to the handler one after another. `outcomes` has the results of the ended calls.

    `context` is passed to hooks. `seconds` is the total time of the ended calls. If `is_abandoned`, the result of a
    call that still runs in a thread is ignored.
    """

    batches: list[Messages]
    context: ConsumeContext | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    is_abandoned: bool = False
    _waiting: deque[Messages] = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = deque(self.batches)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def next_batch(self) -> Messages | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def recall(self) -> list[Messages]:
        recalled: list[Messages] = []
        with suppress(IndexError):  # the thread may take the last batch meanwhile
            while True:
                recalled.append(self._waiting.pop())
        if recalled:
            del self.batches[-len(recalled) :]
        return recalled[::-1]


class HandlerCalls:
    """A caller of the user's handler. A handler that is not async runs in up to `threads` worker threads.

    `batches_a_run` is the number of batches that a worker may pass to the handler one after another. It is the number
    that the handler recently finished in a few milliseconds, at most `most_batches`. Exceptions of the handler are
    logged as warnings with `warns`, else at the level INFO.
    """

    def __init__(
        self, handler: Handler, threads: int, most_batches: int = MOST_BATCHES_A_RUN, *, warns: bool = True
    ) -> None:
        if not callable(handler):
            raise InvalidArgument(f"handler={shown(handler)}: it is a function of a list of messages")
        self.is_async = is_async(handler)
        self._handler: Callable[[Messages], Any] = handler
        self._name = getattr(handler, "__qualname__", type(handler).__name__)
        self._limiter = trio.CapacityLimiter(threads)
        self._most_batches = most_batches
        self.batches_a_run = 1
        self._level = logging.WARNING if warns else logging.INFO
        self._failed = RareLine()

    async def call(self, messages: Messages) -> Outcome:
        run = CallRun([messages])
        await self.make_calls(run)
        return run.outcomes[0]

    async def make_calls(self, run: CallRun) -> None:
        """Calls the handler with the run's batches, one after another, and adds each result or error to `run.outcomes`.

        After SLICE_SECONDS on the loop, or RUN_SECONDS in a thread, no further call begins, and the other batches stay
        in the run. If the task is cancelled, the thread ends its present call but takes no further batch.
        """
        if self.is_async:
            longest = SLICE_SECONDS
            await self._call_on_loop(run)
        else:
            longest = RUN_SECONDS
            try:
                await trio.to_thread.run_sync(self._call_in_thread, run, abandon_on_cancel=True, limiter=self._limiter)
            finally:
                run.is_abandoned = True
        calls = longest * len(run.outcomes) / max(run.seconds, 1e-9)
        self.batches_a_run = max(1, min(self._most_batches, int(calls)))

    async def _call_on_loop(self, run: CallRun) -> None:
        handler, outcomes, began = self._handler, run.outcomes, time.perf_counter()
        while (messages := run.next_batch()) is not None:
            try:
                await handler(messages)
            except Exception as error:
                outcomes.append(self._outcome(messages, error))
            else:
                outcomes.append(CONSUMED)
            run.seconds = time.perf_counter() - began
            if run.seconds > SLICE_SECONDS:
                return

    def _call_in_thread(self, run: CallRun) -> None:
        began = time.perf_counter()
        while (messages := run.next_batch()) is not None:
            try:
                self._handler(messages)
            except Exception as error:
                outcome = self._outcome(messages, error)
            else:
                outcome = CONSUMED
            if run.is_abandoned:
                return
            run.outcomes.append(outcome)
            run.seconds = time.perf_counter() - began
            if run.seconds > RUN_SECONDS:
                return

    def _outcome(self, messages: Messages, error: Exception) -> Outcome:
        if isinstance(error, ConsumeLater):
            return Outcome(messages[error.ack_index + 1 :], error, later=error)
        if isinstance(error, NotHandled):
            return Outcome(messages, error, left=True)
        if isinstance(error, SuspendCurrentQueue):
            return Outcome(messages, error, suspend=error)
        if self._failed.is_due():
            log.log(
                self._level,
                "handler %s raised %s: %s; the %d messages from %s on are delivered again%s",
                self._name,
                type(error).__name__,
                error,
                len(messages),
                messages[0].msg_id,
                self._failed.left_out(),
                exc_info=error if self._level == logging.WARNING else None,
            )
        return Outcome(messages, error)


class Stoppable(Protocol):
    """A consumer that calls a handler until it is stopped."""

    group: str

    async def stop(self, timeout: float | None = None) -> None: ...


async def stop_consumer(consumer: Stoppable, timeout: float | None, is_handler: bool) -> None:
    """Stops a consumer and waits until it has stopped, unless its own handler calls this (`is_handler`)."""
    if is_handler:
        HANDLING.set(consumer)  # makes `stop` not wait for the handler that calls it
    await consumer.stop(timeout)


def is_async(handler: object) -> bool:
    """Returns whether the handler is an `async` function, also inside `functools.partial` or a callable object."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
