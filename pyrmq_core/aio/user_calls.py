"""Calls of the user's coroutine functions on their asyncio loop, for which the library's loop waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, Generic, TypeVar

import trio

from pyrmq_core.aio.loop_returns import LoopReturns
from pyrmq_core.client.consumer.consume.handler_exceptions import NotHandled
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import Portal

R = TypeVar("R")

# The time to wait for the end of a cancelled function.
CANCEL_SECONDS: Final = 5.0
# The interval of checks whether the asyncio loop was closed, because functions that it ran then never end.
LOOK_SECONDS: Final = 1.0


class UserCall(Generic[R]):
    """A call of a user's coroutine function, as a task of an asyncio loop."""

    def __init__(self, returns: LoopReturns, portal: Portal, context: Context) -> None:
        self._returns = returns
        self._portal = portal
        self._context = context
        self._ended = trio.Event()
        self._is_cancelled = False
        self._task: asyncio.Task[R] | None = None

    async def call(self, function: Callable[..., Awaitable[R]], *args: Any) -> R:
        """Runs the function on the asyncio loop and returns its result. If cancelled, it cancels the function too.

        Raises `NotHandled` if the asyncio loop cancels the function or is closed.
        """
        if not self._returns.soon(self._start, function, args):
            raise self._loop_closed()
        try:
            await self._wait()
        except trio.Cancelled:
            self._returns.soon(self._cancel)
            with trio.move_on_after(CANCEL_SECONDS, shield=True), suppress(NotHandled):
                await self._wait()
            raise
        return self._result()

    async def _wait(self) -> None:
        while not self._ended.is_set():
            with trio.move_on_after(LOOK_SECONDS):
                await self._ended.wait()
            if not self._ended.is_set() and self._returns.loop.is_closed():
                raise self._loop_closed()

    def _result(self) -> R:
        task = self._task
        if task is None or task.cancelled():
            raise NotHandled("its task was cancelled on the asyncio loop")
        error = task.exception()
        if error is not None and not isinstance(error, Exception):
            raise NotHandled(f"its task ended with {type(error).__name__}") from error
        return task.result()

    def _start(self, function: Callable[..., Awaitable[R]], args: tuple[Any, ...]) -> None:
        if self._is_cancelled:
            return self._done(None)

        async def called() -> R:
            return await function(*args)

        self._task = self._returns.loop.create_task(called(), context=self._context)
        self._task.add_done_callback(self._done)
        return None

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[R] | None) -> None:
        if task is not None and not task.cancelled():
            # Reading the exception keeps asyncio from logging it: the library's loop raises it, unless the call was
            # cancelled.
            task.exception()
        with suppress(InvalidState):  # the library's loop has ended
            self._portal.soon(self._ended.set)

    def _loop_closed(self) -> NotHandled:
        return NotHandled("the asyncio loop that it belongs to is closed")
