"""Errors of a loop thread that cannot start, or that has ended."""

from __future__ import annotations

import errno
import sys
from typing import Final

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


class LoopEnded(InvalidState):
    """The error of calls after the loop has ended, when the interpreter exits or by a defect of this library."""


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


def loop_ended() -> LoopEnded:
    return LoopEnded(
        "the library's loop has ended: the interpreter is stopping, or the log names the defect that ended it; what "
        "was under way is perhaps done"
    )
