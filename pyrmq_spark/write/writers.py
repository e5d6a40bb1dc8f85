"""The writers that Spark uses: created on the driver, run in tasks (`write_task`), ended with one line in the log.

Spark starts a Python process for each of these steps. Modules that only tasks need are loaded in a task.
"""

from __future__ import annotations

import logging
import random
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from pyrmq_core import SendStatus, line_logger
from pyrmq_spark.gc_freeze import freeze_loaded_objects
from pyrmq_spark.options import ConnectionOptions, SinkOptions
from pyrmq_spark.pyspark_releases import has_stream_arrow_writer
from pyrmq_spark.spark_errors import as_spark_error
from pyrmq_spark.write.commit_message import PartitionWritten, WriteAttempt

if TYPE_CHECKING:
    import pyarrow as pa

    from pyrmq_spark.write.columns import SinkSchema

if TYPE_CHECKING or has_stream_arrow_writer():
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """A stand-in for the class of PySpark 4.1 and later.

        PySpark 4.0 passes Arrow batches only to a `DataSourceArrowWriter`, for batches and for streams
        (pyspark/sql/worker/write_into_data_source.py). It passes rows to any other writer.
        """


log = line_logger(__name__)

# The bits of select_one_message_queue's counter, a Java int without its sign.
COUNTER_BITS: Final = 31
MAX_QUEUES_LISTED: Final = 32
GO_ON: Final = ". Tasks of an interrupted cell may go on sending: spark.sparkContext.cancelAllJobs() ends them first"


class RocketMQWriter(DataSourceArrowWriter):
    """The batch writer, made on the driver and sent to tasks. Round robin over queues starts at a random number."""

    def __init__(self, connection: ConnectionOptions, options: SinkOptions, schema: SinkSchema) -> None:
        self._connection = connection
        self._options = options
        self._schema = schema
        self._name = options.txn_app_id or uuid.uuid4().hex
        self._base = random.getrandbits(COUNTER_BITS)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        freeze_loaded_objects()
        from pyrmq_spark.write.write_task import PartitionWrite

        attempt = WriteAttempt.of_batch(self._name, self._base, self._options.txn_version or 0)
        return PartitionWrite(self._connection, self._options, self._schema, attempt).run(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        reports = _reports(messages)
        line = summary_line(reports)
        if self._options.is_committed:
            number = self._options.txn_version or 0
            line += f"; {_committed(self._connection, self._options, reports, self._name, number, stream=False)}"
        _log(logging.INFO, line)
        freeze_loaded_objects()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Logs which rows stay in the topic: those of finished tasks, and the number of tasks without a report."""
        _log_failure("the write failed", "is stored once more by a second run", messages)
        freeze_loaded_objects()


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """The writer of one batch of a stream. Its round robin over queues starts at the batch's number.

    A repeated batch therefore sends its rows to the same queues.
    """

    def __init__(self, connection: ConnectionOptions, options: SinkOptions, schema: SinkSchema) -> None:
        self._connection = connection
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        freeze_loaded_objects()
        from pyrmq_spark.write.write_task import PartitionWrite

        return PartitionWrite(self._connection, self._options, self._schema, WriteAttempt.of_stream()).run(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        reports = _reports(messages)
        line = f"batch {batchId}: {summary_line(reports)}"
        if self._options.is_committed and reports:
            writer = reports[0].writer
            line += f"; {_committed(self._connection, self._options, reports, writer, batchId, stream=True)}"
        _log(logging.INFO, line)
        freeze_loaded_objects()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Logs the rows that stay in the topic and are sent again when the query continues."""
        _log_failure(f"batch {batchId} failed", "comes again when the query goes on", messages)
        freeze_loaded_objects()


def _committed(
    connection: ConnectionOptions,
    options: SinkOptions,
    reports: Sequence[PartitionWritten],
    writer: str,
    number: int,
    *,
    stream: bool,
) -> str:
    from pyrmq_spark.write.manifest import BatchCommit
    from pyrmq_spark.write.manifest import log as manifest_log

    show(manifest_log)
    with as_spark_error(f"the commit of batch {number} of {writer}"):
        return BatchCommit(connection, options, writer, number, stream=stream).commit(reports)


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[PartitionWritten]:
    # Spark has None for each task that did not finish.
    return [message for message in messages if isinstance(message, PartitionWritten)]


def _log_failure(failure: str, again: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    _log(logging.WARNING, f"{failure}: {failure_line(_reports(messages), len(messages), again)}")


def _log(level: int, line: str) -> None:
    show(log)
    log.log(level, "%s", line)


def failure_line(written: Sequence[PartitionWritten], tasks: int, again: str) -> str:
    """Returns a line about the rows that a failed write left in the topic.

    `written` are the reports of finished tasks, and `tasks` is the number of all tasks. `again` says when the same rows
    are stored once more. A task that was cancelled or killed reports nothing, and may have sent all of its rows. It may
    also still run: Spark does not wait for the end of an interrupted job's tasks, and `abort` cannot end them.
    """
    if len(written) == tasks > 0:
        return f"all of its {tasks} tasks finished, and what they sent stays and {again}: {summary_line(written)}"
    unfinished = f"{tasks - len(written)} of {tasks} tasks did not finish" if tasks else "no task finished"
    line = f"{unfinished}; what they sent stays in the topic, is not counted here, and {again}"
    others = f". The others finished, and their rows stay too: {summary_line(written)}" if written else ""
    return f"{line}{others}{GO_ON}" if tasks else f"{line}{others}"


def summary_line(written: Sequence[PartitionWritten]) -> str:
    """Returns one line about a write from its tasks' reports: rows, bytes, rows per queue, retries, refusals, repeats.

    Rows of a batch that was committed before are not acknowledged again. They are counted separately, as not sent.
    """
    queues: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    for task in written:
        queues.update(task.rows_by_queue)
        statuses.update(task.rows_by_status)
    statuses.pop(SendStatus.SEND_OK.name, None)
    named = ((queue if queue.isprintable() else ascii(queue), rows) for queue, rows in sorted(queues.items()))
    listed = [f"{queue}: {rows}" for queue, rows in islice(named, MAX_QUEUES_LISTED)]
    more = [f"and {len(queues) - MAX_QUEUES_LISTED} queues more"] if len(queues) > MAX_QUEUES_LISTED else []
    retries = sum(task.retries for task in written)
    repeated = sum(task.perhaps_repeated for task in written)
    unsent = sum(task.rows for task in written if task.is_batch_committed)
    sent = sum(task.rows for task in written) - unsent
    parts = [f"{unsent} rows not sent, since their batch was decided before"] * bool(unsent)
    parts += [
        f"{sent} rows ({sum(task.bytes for task in written)} bytes) acknowledged in "
        f"{sum(task.requests for task in written)} requests of {len(written)} tasks",
        f"rows per queue: {', '.join(listed + more) or 'none'}",
        f"{retries} retries",
    ]
    parts += [f"stored, but {', '.join(f'{name}: {rows}' for name, rows in sorted(statuses.items()))}"] * bool(statuses)
    parts += [f"{repeated} rows perhaps stored twice"] * bool(repeated)
    refused = sum(task.dead_lettered for task in written)
    parts += [f"{refused} of the rows refused, and stored as dead letters"] * bool(refused)
    repeats = sum(task.is_repeat for task in written)
    if repeats:
        subject = "1 task is a repeat: what its" if repeats == 1 else f"{repeats} tasks are repeats: what their"
        parts.append(f"{subject} earlier attempts sent stays and is not counted")
    return "; ".join(parts)


# The format of Spark's own lines.
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TIME_FORMAT: Final = "%y/%m/%d %H:%M:%S"


def show(log: logging.Logger) -> None:
    """Prints the records of `log` from INFO on to standard error, which Spark copies to the driver's standard error.

    If the logger or the package has a level or a handler of its own, nothing is changed. The records go to the
    process's own stream, since with worker logging `sys.stderr` is `python_worker_logs()`, which gets them anyway.
    """
    package = logging.getLogger("pyrmq_spark")
    if any(logger.handlers or logger.level for logger in (log, package)):
        return
    handler = logging.StreamHandler(sys.__stderr__)
    handler.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
    log.setLevel(logging.INFO)
    log.addHandler(handler)
