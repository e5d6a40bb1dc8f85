"""The end of a program: the signals that stop it, and its exit status.

An expected failure prints one line and not a traceback.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from pyrmq_core.errors import RocketMQError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.network.nurseries import failure_in

FAILED: Final = 1
# The exit statuses that a shell reports for a program ended by SIGINT or SIGPIPE: 128 plus the signal's number.
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141


def stop_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals on which a program stops: SIGINT, SIGTERM, and SIGHUP of a closed terminal.

    SIGHUP is left out if it is ignored, as under `nohup`, and on a system without it.
    """
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) == signal.SIG_IGN:
        return signal.SIGINT, signal.SIGTERM
    return signal.SIGINT, signal.SIGTERM, hangup


def exit_status(work: Callable[[], object], program: str) -> int:
    """Runs `work` and returns the exit status: 0, 130 after an interrupt, 141 if the reader of standard output is gone.

    For an expected failure it prints a line `program: text` and returns 1. It raises other exceptions, also
    `SystemExit`. It flushes standard output, since a closed pipe could otherwise raise while the interpreter ends.
    """
    try:
        try:
            work()
        finally:
            sys.stdout.flush()
    except BaseException as raised:
        return failure_status(raised, program)
    return 0


def failure_status(raised: BaseException, program: str) -> int:
    """Prints an expected failure and returns its exit status (see `exit_status`). Raises any other exception."""
    failure = failure_in(raised)
    if isinstance(failure, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(failure, BrokenPipeError):
        _write_nowhere()
        return PIPE_CLOSED
    if isinstance(failure, RocketMQError | OSError):
        notes = "".join(f" ({note})" for note in getattr(failure, "__notes__", ()))
        with contextlib.suppress(OSError):  # standard error may be closed as well
            sys.stderr.write(visible_text(f"{program}: {failure}{notes}\n"))
        return FAILED
    if failure is raised:
        raise raised
    raise failure from None


def _write_nowhere() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
