"""Brings the last line of a write into the driver's log: Spark calls `commit` in a process without logging."""

from __future__ import annotations

import logging
import sys
from typing import Final

# The format of Spark's own lines.
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TIME_FORMAT: Final = "%y/%m/%d %H:%M:%S"


def show(log: logging.Logger) -> None:
    """Sends the records of `log` from INFO on to standard error, which Spark copies to that of the driver.

    If a level or a handler is set for the logger or the package, nothing is changed. The stream is the process's own:
    with worker logging on, `sys.stderr` is `python_worker_logs()`, which gets the record anyway.
    """
    package = logging.getLogger(__package__)
    if any(logger.handlers or logger.level for logger in (log, package)):
        return
    handler = logging.StreamHandler(sys.__stderr__)
    handler.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
    log.setLevel(logging.INFO)
    log.addHandler(handler)
