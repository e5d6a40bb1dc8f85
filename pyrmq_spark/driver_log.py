"""Brings the line that a write ends with into the driver's log: Spark calls `commit` in a process without logging."""

from __future__ import annotations

import logging
import sys
from typing import Final

# As Spark's own lines around it look.
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TIME_FORMAT: Final = "%y/%m/%d %H:%M:%S"


def show(log: logging.Logger) -> None:
    """Sends the records of `log` from INFO on to standard error, which Spark copies to that of the driver.

    A level or a handler that somebody set for the logger or the package stays, and nothing is added. The stream is the
    process's own one: with worker logging on, `sys.stderr` is `python_worker_logs()`, which gets the record anyway.
    """
    package = logging.getLogger(__package__)
    if any(logger.handlers or logger.level for logger in (log, package)):
        return
    handler = logging.StreamHandler(sys.__stderr__)
    handler.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
    log.setLevel(logging.INFO)
    log.addHandler(handler)
