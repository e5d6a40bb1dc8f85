"""The trio loop that runs all blocking calls: one daemon thread in each process, started when first needed.

The thread stops when the interpreter exits. A child after `fork` forgets its parent's loop, and starts its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context, copy_context
from typing import Any, Final, Generic, TypeAlias, TypeVar

import trio

from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.loop_errors import LoopEnded, check_unpatched, loop_ended, not_started
from pyrmq_core.network import LoopAccess

log = logging.getLogger(__name__)

T = TypeVar("T")
# A function for the loop to call, its arguments, and the function to call with the error if the loop ends first.
Queued: TypeAlias = "tuple[Callable[..., object], tuple[object, ...], Callable[[LoopEnded], object] | None]"

STOP_SECONDS: Final = 3.0
# The time in which a context has to close. If it takes longer, a user's function blocks the loop.
CLOSE_SECONDS: Final = 30.0

# The errors of waking a loop that has ended.
LOOP_GONE: Final = (trio.RunFinishedError, OSError)


class LoopLock(trio.abc.Instrument):
    """A lock with which another thread uses a loop's state while the loop waits for I/O. It is a trio `Instrument`.

    The loop holds the lock whenever it runs, and releases it during each wait. While another thread holds the lock,
    only that thread uses the loop's state. It must not call trio's functions, which work only in the loop's thread. A
    blocking call that holds the lock writes its request itself, without waking the loop's thread. That saves a third of
    the processor time if there is one caller at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop_waits = False

    def before_run(self) -> None:
        self._lock.acquire()

    def before_io_wait(self, timeout: float) -> None:
        if timeout > 0:
            self._loop_waits = True
            self._lock.release()

    def after_io_wait(self, timeout: float) -> None:
        if timeout > 0:
            self._loop_waits = False  # before the wait for the lock, so that `try_run` gives up in other threads
            self._lock.acquire()

    def end(self) -> None:
        self._loop_waits = False

    def try_run(self, function: Callable[..., bool], *args: object) -> bool:
        """Calls the function in this thread and returns its result. Returns False at once if the loop is running."""
        return self._loop_waits and self._run(function, args)

    def _run(self, function: Callable[..., bool], args: tuple[object, ...]) -> bool:
        with self._lock:
            return self._loop_waits and function(*args)


class Portal:
    """The library's trio loop in its own thread, on which other threads run calls."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._clock: trio.abc.Clock | None = None
        self._loop_lock = LoopLock()
        self.access_here = LoopAccess(self.now, self.soon, writes_here=True)
        self._queue: deque[Queued] = deque()
        self._woken = False  # True until the loop runs the queued functions, since one wake is enough
        self._started: set[Future[Any]] = set()  # calls that have not ended
        self._crash_ends: dict[object, Callable[[InvalidState], None]] = {}
        self.crash: LoopEnded | None = None
        self._is_ending = False
        self._is_stopped = False
        self._start_error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pyrmq-loop", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise not_started(error) from error
        self._ready.wait()
        if self._start_error is not None:
            raise not_started(self._start_error) from self._start_error

    def submit(self, call: Callable[..., Awaitable[T]], *args: Any) -> Future[T]:
        """Starts a call on the loop and returns its future. Cancelling the future cancels the call.

        The call has a copy of the caller's context variables, since they contain the current trace (OpenTelemetry).
        """
        future: Future[T] = Future()
        self._started.add(future)
        future.add_done_callback(self._started.discard)
        try:
            self.soon(self._start, copy_context(), call, args, future, ended=lambda end: _settle(future, error=end))
        except BaseException:
            self._started.discard(future)
            raise
        return future

    def run(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Runs a call on the loop and waits for its result. An interrupt (Ctrl-C) cancels the call."""
        self.check_outside()
        future = self.submit(call, *args)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def check_outside(self) -> None:
        """Raises `InvalidState` if it is called in the loop's own thread, where a blocking call would never end."""
        if threading.current_thread() is self._thread:
            raise InvalidState(
                "a blocking call in the library's own thread (a future's callback) would wait for itself"
            )

    def soon(
        self, function: Callable[..., object], *args: object, ended: Callable[[LoopEnded], object] | None = None
    ) -> None:
        """Schedules a function on the loop, from any thread.

        If the loop has ended, calls `ended` with the error, or raises it if there is no `ended`. If the loop ends
        before it runs the function, `ended` is called later, if given.
        """
        assert self._token is not None
        self._queue.append((function, args, ended))
        if self._woken:
            return
        try:
            self._woken = True
            self._token.run_sync_soon(self._run_queue)
        except BaseException as error:  # even an interrupt: no call would wake the loop if `_woken` stayed True
            self._woken = False
            if not isinstance(error, LOOP_GONE):
                raise
            self._end_queue()  # other threads may have queued functions and left the waking to this one
            if ended is None:
                raise self.crash or loop_ended() from None

    def run_if_idle(self, function: Callable[..., bool], *args: object) -> bool:
        """Calls `function` in this thread and returns its result, if the loop is idle and waits for I/O.

        Returns False without calling it if the loop is running, or has yet to run functions passed to `soon`.
        `function` must not call trio. It may use the loop only by `access_here`.
        """
        return not self._queue and self._loop_lock.try_run(function, *args)

    def now(self) -> float:
        assert self._clock is not None
        return self._clock.current_time()

    @property
    def is_broken(self) -> bool:
        """True if a defect has ended the loop, or is ending it. The function `portal` then starts another one."""
        return self.crash is not None or (self._is_ending and not self._is_stopped)

    def on_crash(self, owner: object, end: Callable[[InvalidState], None]) -> None:
        """Registers a function to call with the error if a defect ends the loop. `forget(owner)` removes it."""
        self._crash_ends[owner] = end

    def forget(self, owner: object) -> None:
        self._crash_ends.pop(owner, None)

    def stop(self) -> None:
        self._is_stopped = True
        if self._thread.is_alive() and self._nursery is not None:
            with suppress(InvalidState):
                self.soon(self._nursery.cancel_scope.cancel)
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        try:
            trio.run(self._main, restrict_keyboard_interrupt_to_checkpoints=True, instruments=[self._loop_lock])
        except BaseException as error:
            if self._token is None:
                self._start_error = error
            else:
                self._crashed(error)
        finally:
            self._loop_lock.end()
            self._ready.set()
            self._end_queue()

    def _crashed(self, error: BaseException) -> None:
        log.critical("the library's loop ended by a defect", exc_info=error)
        self.crash = crash = LoopEnded(
            f"the library's loop ended by a defect ({type(error).__name__}: {error}); what was under way is perhaps "
            "done: make new clients, producers and consumers"
        )
        crash.__cause__ = error
        for end in list(self._crash_ends.values()):
            try:
                end(crash)
            except Exception:
                log.exception("a part of the library could not be ended")
        for future in list(self._started):
            _settle(future, error=crash)

    def _run_queue(self) -> None:
        self._woken = False
        with suppress(IndexError):  # raised when the queue is empty, which another thread may also empty
            while True:
                function, args, _ = self._queue.popleft()
                try:
                    function(*args)
                except BaseException:
                    log.exception("a function on the library's loop raised")

    def _end_queue(self) -> None:
        self._woken = False
        with suppress(IndexError):
            while True:
                if (ended := self._queue.popleft()[2]) is not None:
                    ended(self.crash or loop_ended())

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._token, self._clock = trio.lowlevel.current_trio_token(), trio.lowlevel.current_clock()
            self._ready.set()
            try:
                await trio.sleep_forever()
            finally:
                self._is_ending = True

    def _start(
        self, context: Context, call: Callable[..., Awaitable[T]], args: tuple[Any, ...], future: Future[T]
    ) -> None:
        assert self._nursery is not None
        try:
            context.run(self._nursery.start_soon, self._fulfil, call, args, future)
        except RuntimeError:  # the nursery is closed, since `stop` was called before
            _settle(future, error=loop_ended())

    async def _fulfil(self, call: Callable[..., Awaitable[T]], args: tuple[Any, ...], future: Future[T]) -> None:
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            future.add_done_callback(lambda done: _cancel_soon(token, scope) if done.cancelled() else None)
            try:
                result = await call(*args)
            except trio.Cancelled:
                if not future.cancelled():
                    self._is_ending = True
                    _settle(future, error=loop_ended())
                raise
            except BaseException as error:
                _settle(future, error=loop_ended() if self._is_ending else error)
            else:
                _settle(future, result=result)


class HeldContext(Generic[T]):
    """An async context manager that a task on the loop keeps open until `close`."""

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[T], *, wait: bool = True) -> None:
        """Opens `manager` in a task on the loop, and waits until it is open.

        With `wait=False` it returns at once, and the future `opening` is done when the context is open or has failed to
        open.
        """
        self._portal = portal
        self._pid = os.getpid()
        self._scope = trio.CancelScope()
        self._close = trio.Event()
        self._has_value = False
        self.opening = opening = Future[T]()
        self._task = portal.submit(self._hold, manager)
        self._task.add_done_callback(lambda task: _settle(opening, error=_error_of(task)))
        if wait:
            try:
                opening.result()
            except BaseException:
                self.abandon()
                raise

    @property
    def value(self) -> T:
        """The object that the opened context manager returned, such as a producer.

        Raises `InvalidState` in a child after `fork`, which has another loop.
        """
        if self._pid != os.getpid():
            raise InvalidState(f"opened in process {self._pid}; a child after fork opens its own")
        if self._portal.crash is not None:
            raise self._portal.crash
        return self._value if self._has_value else self.opening.result()

    @property
    def is_open(self) -> bool:
        """True if the context was opened in this process, and its loop still runs."""
        return self._has_value and self._pid == os.getpid() and not self._portal.is_broken

    @property
    def has_opened(self) -> bool:
        """True once the context has opened, and still after it was closed, or in a child after `fork`."""
        return self._has_value

    def close(self, seconds: float = 0.0) -> None:
        """Leaves the context and waits until it has ended. Raises its exception.

        It waits for at most `seconds` plus `CLOSE_SECONDS`, and then logs that something blocks the loop.
        """
        left = self.begin_close()
        if left is None:
            return
        try:
            left.result(seconds + CLOSE_SECONDS)
        except (CancelledError, LoopEnded):
            pass
        except TimeoutError:
            if left.done():  # the context itself raised the `TimeoutError`
                raise
            self.close_timed_out(seconds)

    def begin_close(self) -> Future[None] | None:
        """Begins to leave the context. Returns a future that ends with the context, or None in a child after `fork`."""
        if self._pid != os.getpid():
            return None
        self._portal.check_outside()
        self._portal.forget(self)
        with suppress(InvalidState):
            self._portal.soon(self._close.set)
        return self._task

    def close_timed_out(self, seconds: float) -> None:
        log.error(
            "closing %s did not end within %.0f s and is not waited for: a callback, a hook or a filter holds up "
            "the library's loop",
            type(self._value).__name__ if self._has_value else "what was being opened",
            seconds + CLOSE_SECONDS,
        )

    def on_crash(self, end: Callable[[InvalidState], None]) -> None:
        self._portal.on_crash(self, end)

    def abandon(self) -> None:
        if self._pid == os.getpid():
            with suppress(InvalidState):
                self._portal.soon(self._scope.cancel)

    async def _hold(self, manager: AbstractAsyncContextManager[T]) -> None:
        with self._scope:
            async with manager as value:
                self._value, self._has_value = value, True
                _settle(self.opening, result=value)
                await self._close.wait()


_portal: Portal | None = None
_lock = threading.Lock()


def portal() -> Portal:
    """Returns this process's loop, started if needed. Raises `LoopNotStarted` if that is impossible."""
    global _portal
    if "gevent.monkey" in sys.modules or "eventlet.patcher" in sys.modules:
        check_unpatched()
    with _lock:
        if _portal is None or _portal.is_broken:
            _portal = Portal()
        return _portal


def _settle(future: Future[Any], *, result: object = None, error: BaseException | None = None) -> None:
    try:
        if not future.done():
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
    except InvalidStateError:
        pass  # the future was cancelled after the check
    except BaseException:
        log.exception("a callback of a future raised")


def _error_of(task: Future[Any]) -> BaseException:
    if task.cancelled():
        return CancelledError()
    return task.exception() or InvalidState("closed while it was being opened")


def _cancel_soon(token: trio.lowlevel.TrioToken, scope: trio.CancelScope) -> None:
    with suppress(*LOOP_GONE):
        token.run_sync_soon(scope.cancel)


def _stop_at_exit() -> None:
    if _portal is not None:
        _portal.stop()


def _forget_in_child() -> None:
    global _portal, _lock
    _portal, _lock = None, threading.Lock()


atexit.register(_stop_at_exit)
os.register_at_fork(after_in_child=_forget_in_child)
