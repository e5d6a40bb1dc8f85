"""Errors of a loop thread that cannot start, and the lock with which other threads use the loop's state."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.errors import InvalidState

GREENLETS: Final = (
    "{} has replaced Python's threads, on which the library's loop runs: use a pool of threads or processes instead of "
    "its pool (celery -P threads, gunicorn -k gthread){}"
)
GEVENT_CALL: Final = (
    ", or call monkey.patch_all(thread=False, select=False, queue=False); each call to the library then holds up the "
    "other greenlets until it ends"
)


class LoopNotStarted(InvalidState):
    """The loop's thread cannot start: no thread or file is left, or a library replaced Python's threads."""


def check_unpatched() -> None:
    """Raises `LoopNotStarted` if gevent or eventlet has replaced threads or selectors, which the loop needs.

    Imports neither library: a module that is not loaded has replaced nothing.
    """
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if gevent is not None and any(map(gevent.is_module_patched, ("threading", "select", "queue"))):
        raise LoopNotStarted(GREENLETS.format("gevent", GEVENT_CALL))
    if eventlet is not None and any(map(eventlet.is_monkey_patched, ("thread", "select"))):
        raise LoopNotStarted(GREENLETS.format("eventlet", ""))


def not_started(error: BaseException) -> LoopNotStarted:
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        reason += "; no file descriptor is left: close files that are not used, or raise their limit (ulimit -n)"
    elif isinstance(error, RuntimeError):
        reason += "; end threads that are not used, or raise their limit (ulimit -u, pids.max of the container)"
    return LoopNotStarted(f"the library's loop cannot start: {reason}")


class LoopLock(trio.abc.Instrument):
    """A lock with which another thread uses a loop's state while the loop waits for I/O. It is a trio `Instrument`.

    The loop holds the lock whenever it runs, and releases it around each wait. A thread that holds the lock is the only
    user of the loop's state. It must not call trio's functions, which work in the loop's thread only. A blocking call
    that holds the lock can write its request without waiting for the loop's thread. That saves a third of the processor
    time, if there is one caller at a time.
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
            self._loop_waits = False  # set first, so that threads that wait for the lock give up
            self._lock.acquire()

    def end(self) -> None:
        """Makes every later `try_run` return False, when the loop has ended."""
        self._loop_waits = False

    def try_run(self, function: Callable[..., bool], *args: object) -> bool:
        """Calls the function in this thread and returns its result. Returns False at once if the loop is running."""
        return self._loop_waits and self._run(function, args)

    def _run(self, function: Callable[..., bool], args: tuple[object, ...]) -> bool:
        with self._lock:
            return self._loop_waits and function(*args)
