"""Passes results from the library's loop to an asyncio loop, and calls the user's functions there."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Final, Generic, TypeVar

from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.loop_errors import LoopEnded
from pyrmq_core.loop_thread.portal import CLOSE_SECONDS, HeldContext, portal

R = TypeVar("R")

# The time to wait for a cancelled call to end. It does so at once, unless a user's function blocks the library's loop.
CANCEL_SECONDS: Final = CLOSE_SECONDS


class LoopReturns:
    """A queue of functions that other threads schedule on an asyncio loop. The loop is woken once for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._queue: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._woken = False

    def soon(self, function: Callable[..., object], *args: object) -> bool:
        """Schedules a function on the asyncio loop, from any thread. Returns False if that loop is closed."""
        self._queue.append((function, args))
        if self._woken and not self.loop.is_closed():
            return True
        self._woken = True
        try:
            self.loop.call_soon_threadsafe(self._run_queue)
        except RuntimeError:  # the loop is closed: no task waits there any more
            self._queue.clear()
            self._woken = False
            return False
        return True

    def _run_queue(self) -> None:
        self._woken = False
        for _ in range(len(self._queue)):  # a function that is added during this loop wakes the asyncio loop again
            function, args = self._queue.popleft()
            function(*args)


_of_thread = threading.local()


def here() -> LoopReturns:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidState(
            "pyrmq_core.aio is for asyncio, and no asyncio loop runs here: in a trio program use pyrmq_core, in a "
            "thread without a loop pyrmq_core.blocking"
        ) from None
    returns: LoopReturns | None = getattr(_of_thread, "returns", None)
    if returns is None or returns.loop is not loop:
        returns = _of_thread.returns = LoopReturns(loop)
    return returns


async def on_library_loop(call: Callable[..., Awaitable[R]], *args: Any) -> R:
    """Runs a call on the library's loop and returns its result.

    If the task is cancelled, it cancels the call and waits for its end.
    """
    returns = here()
    running = _LoopCall(returns, call)
    future = portal().submit(running.run, *args)
    try:
        return await returned(future)
    except asyncio.CancelledError:
        future.cancel()
        await running.wait_ended()
        raise


async def returned(future: Future[R]) -> R:
    """Waits for the future and returns its result. A cancelled wait does not cancel the future."""
    returns = here()
    waiting: asyncio.Future[R] = returns.loop.create_future()
    future.add_done_callback(partial(returns.soon, _settle, waiting))
    return await waiting


async def close_held(held: HeldContext[Any], seconds: float = 0.0) -> None:
    """Closes a context that is open on the library's loop, and waits up to `seconds` plus `CLOSE_SECONDS` for its end.

    Raises the exception of closing it. If the time is too short, it logs an error and returns.
    """
    left = held.begin_close()
    if left is None:
        return
    try:
        async with asyncio.timeout(seconds + CLOSE_SECONDS):
            await returned(left)
    except (CancelledError, LoopEnded):
        pass
    except asyncio.CancelledError:
        held.abandon()
        raise
    except Exception as error:
        if held.opening.done() and held.opening.exception() is error:
            return  # opening failed, and the task that opened the context got this error
        if left.done():  # closing the context raised this error
            raise
        held.close_timed_out(seconds)


class _LoopCall(Generic[R]):
    def __init__(self, returns: LoopReturns, call: Callable[..., Awaitable[R]]) -> None:
        self._returns = returns
        self._call = call
        self._is_over = False
        self._waiting: asyncio.Future[None] | None = None

    async def run(self, *args: Any) -> R:
        try:
            return await self._call(*args)
        finally:
            # Sets `_is_over` before it reads `_waiting`. `wait_ended` does the reverse, so that no end is missed.
            self._is_over = True
            if self._waiting is not None:
                self._returns.soon(_end, self._waiting)

    async def wait_ended(self) -> None:
        self._waiting = self._returns.loop.create_future()
        if not self._is_over:
            await asyncio.wait([self._waiting], timeout=CANCEL_SECONDS)


def _settle(waiting: asyncio.Future[R], future: Future[R]) -> None:
    if waiting.done():  # the waiting task was cancelled
        return
    if future.cancelled():
        waiting.set_exception(CancelledError())
    elif (error := future.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(future.result())


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
