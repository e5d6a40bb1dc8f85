"""What a job is told when something fails: one line that begins with a stable condition in brackets.

Spark shows an error of a Python source as text only, so everything a reader needs stands in that line. Below the seam
errors are `RocketMQError`s with a `condition`; `as_spark_error` alone turns them into that line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyrmq_core import InvalidArgument, InvalidMessage, RocketMQError

log = logging.getLogger(__name__)


class UnknownOption(InvalidArgument):
    """An option nobody knows."""

    condition = "RMQ_UNKNOWN_OPTION"


class InvalidOption(InvalidArgument):
    """An option that is missing, has no such value, or excludes another one."""

    condition = "RMQ_INVALID_OPTION"


class InvalidColumn(InvalidArgument):
    """A schema with a column that the source does not have or the sink does not take."""

    condition = "RMQ_INVALID_COLUMN"


class InvalidRow(InvalidMessage):
    """A row that no message can be made of."""

    condition = "RMQ_INVALID_ROW"


class InvalidOffsets(InvalidArgument):
    """Positions that do not fit the topic's queues or one another."""

    condition = "RMQ_INVALID_OFFSETS"


class InvalidCheckpoint(InvalidArgument):
    """A checkpoint whose offset this source cannot read."""

    condition = "RMQ_INVALID_CHECKPOINT"


class BrokerUnavailable(RocketMQError):
    """A broker that is down did not come back while the query waited for it; nothing was skipped."""

    condition = "RMQ_BROKER_UNAVAILABLE"


class NotReadable(RocketMQError):
    """A queue is there, and its topic's READ permission is taken."""

    condition = "RMQ_NOT_READABLE"


class UnsupportedMode(InvalidArgument):
    """A save mode or output mode that a message queue cannot have."""

    condition = "RMQ_UNSUPPORTED_MODE"


class OldPySpark(RocketMQError):
    """A PySpark older than the oldest that the source runs on."""

    condition = "RMQ_OLD_PYSPARK"


class RowsUnaccounted(RocketMQError):
    """Fewer or more rows were acknowledged than were taken."""

    condition = "RMQ_ROWS_UNACCOUNTED"


class RocketMQSparkError(Exception):
    """What Spark shows: `[CONDITION] what is wrong, where, and what to do`."""


def one_line(error: RocketMQError, where: str = "") -> str:
    """The one line; `where` says which partition or step it happened in."""
    text = " ".join(str(error).split("\n"))
    return f"[{error.condition}] {where}: {text}" if where else f"[{error.condition}] {text}"


@contextmanager
def as_spark_error(where: str = "") -> Iterator[None]:
    """Errors of the core leave this block as `RocketMQSparkError`; the whole story goes to the debug log."""
    try:
        yield
    except RocketMQError as error:
        log.debug("%s", where or "failed", exc_info=error)
        raise RocketMQSparkError(one_line(error, where)) from None
