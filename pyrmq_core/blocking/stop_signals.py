"""`StopSignals`: Ctrl-C, SIGTERM or SIGHUP stops a blocking `run` in order before the process ends."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

log = logging.getLogger(__name__)

# The default handler of each signal, from Python or the system.
DEFAULTS: Final[dict[signal.Signals, Any]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
if hasattr(signal, "SIGHUP"):  # Windows has no SIGHUP
    DEFAULTS[signal.SIGHUP] = signal.SIG_DFL


class StopSignals:
    """A context manager, for the main thread, that calls `stop` at the first signal. A second one ends its block at
    once.

    Signals for which the program has its own handler are left to it. `stop` must not wait, since it may interrupt the
    main thread at any point.
    """

    def __init__(self, stop: Callable[[], object]) -> None:
        self._stop = stop
        self._pid = os.getpid()
        self._received: int | None = None
        self._replaced: list[signal.Signals] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number, default in DEFAULTS.items():
                if signal.getsignal(number) == default:
                    self._replaced.append(number)
                    signal.signal(number, self._caught)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number in self._replaced:
            if signal.getsignal(number) == self._caught:
                signal.signal(number, DEFAULTS[number])
        if kind is None and self._received is not None:
            raise ending_of(self._received)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # in a child after fork the signal has its default effect
            signal.signal(number, DEFAULTS[signal.Signals(number)])
            os.kill(os.getpid(), number)
            return
        if self._received is not None:
            raise ending_of(number)
        self._received = number
        log.info("%s: stopping in order; a second signal stops at once", signal.Signals(number).name)
        self._stop()


def ending_of(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
