"""The one trio loop behind all blocking calls: in one daemon thread a process, started when first needed.

A child after `fork` forgets it, unclosed, and starts its own on first use. At interpreter exit it is stopped.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Generic, TypeVar

import trio

from pyrmq_core.blocking.lending import Lending
from pyrmq_core.errors import InvalidState

T = TypeVar("T")
STOP_SECONDS: Final = 3.0


class Portal:
    """Runs async calls on its loop for callers in any other thread."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._clock: trio.abc.Clock | None = None
        self._lending = Lending()
        self._queue: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._woken = False  # the loop will look at the queue: one wake serves all that come meanwhile
        self._thread = threading.Thread(target=self._run, name="pyrmq-loop", daemon=True)
        self._thread.start()
        self._ready.wait()

    def submit(self, call: Callable[..., Awaitable[T]], *args: Any) -> Future[T]:
        """The call, started on the loop; cancelling the future cancels it, as far as it has not ended."""
        future: Future[T] = Future()
        self.soon(self._start, call, args, future)
        return future

    def run(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """The call's result. When the waiting thread is interrupted (Ctrl-C), the call is cancelled."""
        self.check_outside()
        future = self.submit(call, *args)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def check_outside(self) -> None:
        """`InvalidState` in the loop's own thread, where callbacks of futures run: waiting there never ends."""
        if threading.current_thread() is self._thread:
            raise InvalidState(
                "a blocking call in the library's own thread (a future's callback) would wait for itself"
            )

    def soon(self, function: Callable[..., object], *args: object) -> None:
        """Called on the loop, from any thread."""
        assert self._token is not None
        self._queue.append((function, args))
        if self._woken:
            return
        try:
            self._woken = True
            self._token.run_sync_soon(self._run_queue)
        except BaseException as error:  # an interrupt too: else nobody would wake the loop again
            self._woken = False
            if isinstance(error, trio.RunFinishedError):
                raise _ended() from None
            raise

    def aside(self, function: Callable[..., bool], *args: object) -> bool:
        """The function's word, called in this thread while the loop waits for I/O; False when it does not wait now.

        It does not overtake what `soon` was given before. It must not use what belongs to trio.
        """
        return not self._queue and self._lending.try_run(function, *args)

    def now(self) -> float:
        """The loop's time, in any thread."""
        assert self._clock is not None
        return self._clock.current_time()

    def stop(self) -> None:
        """Cancels everything and waits a bounded time for it to end."""
        if self._thread.is_alive() and self._nursery is not None:
            with suppress(InvalidState):
                self.soon(self._nursery.cancel_scope.cancel)
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        trio.run(self._main, restrict_keyboard_interrupt_to_checkpoints=True, instruments=[self._lending])
        self._run_queue()  # what came too late is told so

    def _run_queue(self) -> None:
        self._woken = False
        while self._queue:
            function, args = self._queue.popleft()
            function(*args)

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._token, self._clock = trio.lowlevel.current_trio_token(), trio.lowlevel.current_clock()
            self._ready.set()
            await trio.sleep_forever()

    def _start(self, call: Callable[..., Awaitable[T]], args: tuple[Any, ...], future: Future[T]) -> None:
        assert self._nursery is not None
        try:
            self._nursery.start_soon(self._fulfil, call, args, future)
        except RuntimeError:  # the nursery is closed: `stop` came first
            _settle(future, error=_ended())

    async def _fulfil(self, call: Callable[..., Awaitable[T]], args: tuple[Any, ...], future: Future[T]) -> None:
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            future.add_done_callback(lambda done: _cancel_soon(token, scope) if done.cancelled() else None)
            try:
                result = await call(*args)
            except trio.Cancelled:
                _settle(future, error=CancelledError())
                raise
            except BaseException as error:
                _settle(future, error=error)
            else:
                _settle(future, result=result)


class Opened(Generic[T]):
    """An async context manager held open on the loop by a task of its own, until `close`; of this process alone."""

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[T]) -> None:
        self._portal = portal
        self._pid = os.getpid()
        self._scope = trio.CancelScope()
        self._close = trio.Event()
        opened: Future[T] = Future()
        self._task = portal.submit(self._hold, manager, opened)
        self._task.add_done_callback(lambda task: _settle(opened, error=_error_of(task)))
        try:
            self._value = opened.result()
        except BaseException:
            self.abandon()
            raise

    @property
    def value(self) -> T:
        """What the manager gave; `InvalidState` in a child after `fork`, whose loop is another one."""
        if self._pid != os.getpid():
            raise InvalidState(f"opened in process {self._pid}; a child after fork opens its own")
        return self._value

    def close(self) -> None:
        """Leaves the context and waits until it is left; raises what leaving raised. A second call does nothing."""
        if self._pid != os.getpid():
            return
        self._portal.check_outside()
        with suppress(InvalidState):
            self._portal.soon(self._close.set)
        with suppress(CancelledError):
            self._task.result()

    def abandon(self) -> None:
        """Cancels what goes on inside; does not wait."""
        if self._pid == os.getpid():
            with suppress(InvalidState):
                self._portal.soon(self._scope.cancel)

    async def _hold(self, manager: AbstractAsyncContextManager[T], opened: Future[T]) -> None:
        with self._scope:
            async with manager as value:
                _settle(opened, result=value)
                await self._close.wait()


_portal: Portal | None = None
_lock = threading.Lock()


def portal() -> Portal:
    """This process's loop."""
    global _portal
    with _lock:
        if _portal is None:
            _portal = Portal()
        return _portal


def _settle(future: Future[Any], *, result: object = None, error: BaseException | None = None) -> None:
    """Set once; a future that was cancelled meanwhile stays so."""
    with suppress(Exception):
        if not future.done():
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)


def _error_of(task: Future[Any]) -> BaseException:
    if task.cancelled():
        return CancelledError()
    return task.exception() or InvalidState("closed while it was being opened")


def _ended() -> InvalidState:
    return InvalidState("the interpreter is stopping, and the library's loop has ended")


def _cancel_soon(token: trio.lowlevel.TrioToken, scope: trio.CancelScope) -> None:
    with suppress(trio.RunFinishedError):
        token.run_sync_soon(scope.cancel)


def _stop_at_exit() -> None:
    if _portal is not None:
        _portal.stop()


def _forget_in_child() -> None:
    """The loop's thread and sockets belong to the parent: the child neither uses nor closes them."""
    global _portal, _lock
    _portal, _lock = None, threading.Lock()


atexit.register(_stop_at_exit)
os.register_at_fork(after_in_child=_forget_in_child)
