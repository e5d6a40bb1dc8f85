"""The errors of a loop's thread that cannot start, and the lock with which other threads use the loop's state."""

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
    """The loop's thread cannot start, for want of threads or files, or since a library replaced Python's threads."""


def check_unpatched() -> None:
    """Raises `LoopNotStarted` if gevent or eventlet has replaced Python's threads or selectors: the loop needs them."""
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
            self._loop_waits = False  # before it waits for the lock, so that other waiting threads give up
            self._lock.acquire()

    def end(self) -> None:
        self._loop_waits = False

    def try_run(self, function: Callable[..., bool], *args: object) -> bool:
        """Calls the function in this thread and returns its result. Returns False at once if the loop is running."""
        return self._loop_waits and self._run(function, args)

    def _run(self, function: Callable[..., bool], args: tuple[object, ...]) -> bool:
        with self._lock:
            return self._loop_waits and function(*args)
