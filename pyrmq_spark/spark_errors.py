"""The errors that a job raises: one line of text that begins with a stable condition in brackets.

Spark shows an error of a Python source as text only, so the line holds everything that a reader needs. Inside this
package errors are `RocketMQError`s with a `condition`. Only `as_spark_error` turns them into that line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyrmq_core import InvalidArgument, InvalidMessage, RocketMQError, line_logger, visible_text

log = line_logger(__name__)


class UnknownOption(InvalidArgument):
    """An option that neither this source nor Spark has."""

    condition = "RMQ_UNKNOWN_OPTION"


class InvalidOption(InvalidArgument):
    """An option is missing, has an impossible value, or excludes another option."""

    condition = "RMQ_INVALID_OPTION"


class InvalidColumn(InvalidArgument):
    """A schema with a column that the source does not have or the sink does not take."""

    condition = "RMQ_INVALID_COLUMN"


class InvalidRow(InvalidMessage):
    """A row cannot become a message."""

    condition = "RMQ_INVALID_ROW"


class InvalidChange(InvalidMessage):
    """A message should be a change of a table, but is none."""

    condition = "RMQ_INVALID_CHANGE"


class LackingColumn(InvalidMessage):
    """A change lacks the value of a declared column: absence is not null."""

    condition = "RMQ_LACKING_COLUMN"


class UnorderedChanges(InvalidMessage):
    """Changes of one key whose order cannot be derived from their messages."""

    condition = "RMQ_UNORDERED_CHANGES"


class UnfitCapture(InvalidMessage):
    """A setting of Canal or Debezium with which messages have other values than the database."""

    condition = "RMQ_UNFIT_CAPTURE"


class InvalidOffsets(InvalidArgument):
    """Positions that do not fit the topic's queues or one another."""

    condition = "RMQ_INVALID_OFFSETS"


class MissingChanges(InvalidOffsets):
    """An error for messages that are missing between the last one applied to a table and the first of this batch."""

    condition = "RMQ_MISSING_CHANGES"


class InvalidCheckpoint(InvalidArgument):
    """A checkpoint whose offset this source cannot read."""

    condition = "RMQ_INVALID_CHECKPOINT"


class BrokerUnavailable(RocketMQError):
    """A broker was down, and did not come back while the query waited for it. Nothing was skipped."""

    condition = "RMQ_BROKER_UNAVAILABLE"


class NotReadable(RocketMQError):
    """A queue exists, but its topic lacks the READ permission."""

    condition = "RMQ_NOT_READABLE"


class UnsupportedMode(InvalidArgument):
    """A save mode or output mode that a message queue cannot have."""

    condition = "RMQ_UNSUPPORTED_MODE"


class OldPySpark(RocketMQError):
    """A PySpark older than the oldest that the source runs on."""

    condition = "RMQ_OLD_PYSPARK"


class NoProgress(RocketMQError):
    """A query without a progress yet: its lag is not known."""

    condition = "RMQ_NO_PROGRESS"


class RowsUnaccounted(RocketMQError):
    """The number of acknowledged rows differs from the number of rows to write."""

    condition = "RMQ_ROWS_UNACCOUNTED"


class NotCommitted(RocketMQError):
    """The rows of a batch are stored, but no record of the manifest lists them."""

    condition = "RMQ_NOT_COMMITTED"


class ConcurrentWrite(RocketMQError):
    """Another writer has committed this batch, or later ones, under the same name."""

    condition = "RMQ_CONCURRENT_WRITE"


class RocketMQSparkError(Exception):
    """The error that Spark shows: `[CONDITION] fault, where it is, and remedy`.

    It passes between processes and to terminals, and may contain a peer's text. So it has no character that cannot be
    encoded in UTF-8 or that controls a terminal.
    """

    def __init__(self, text: str) -> None:
        super().__init__(visible_text(text))


def one_line(error: RocketMQError, where: str = "") -> str:
    """Returns the error as one line. `where` names the partition or step in which it happened."""
    text = f"{where}: {error}" if where else str(error)
    return f"[{error.condition}] {' '.join(text.split(chr(10)))}"


@contextmanager
def as_spark_error(where: str = "") -> Iterator[None]:
    """Raises errors of the core as `RocketMQSparkError`. Tracebacks are written to the debug log."""
    try:
        yield
    except RocketMQError as error:
        log.debug("%s", where or "failed", exc_info=error)
        raise RocketMQSparkError(one_line(error, where)) from None
