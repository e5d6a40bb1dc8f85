"""A lock by which another thread may use the loop's state while the loop waits for I/O.

The loop holds the lock whenever it runs, and releases it around each wait: the thread that holds it has the loop's
state to itself. trio's own functions work in the loop's thread only, so the thread must not call them. A blocking call
thereby writes its request without a hop to the loop's thread: a third of its processor time, for one caller at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import trio


class LoopLock(trio.abc.Instrument):
    """The lock of one loop; an instrument of that loop's run, which takes and releases it."""

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
            self._loop_waits = False  # a thread that waits for the lock now takes the way over the loop
            self._lock.acquire()

    def end(self) -> None:
        """Refuses every later `try_run`: the loop has ended, perhaps during a wait."""
        self._loop_waits = False

    def try_run(self, function: Callable[..., bool], *args: object) -> bool:
        """Calls the function in this thread and returns its result; False, without a call, if the loop is running."""
        return self._loop_waits and self._run(function, args)

    def _run(self, function: Callable[..., bool], args: tuple[object, ...]) -> bool:
        with self._lock:
            return self._loop_waits and function(*args)
