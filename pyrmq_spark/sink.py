"""The batch writer as Spark sees it: made on the driver, run in tasks (`writing`), closed by one line on what it wrote.

Spark starts a Python process for each of these steps; what only a task needs is loaded in a task.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyrmq_core import SendStatus
from pyrmq_spark.options import Connection, SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyrmq_spark.columns import SinkSchema

log = logging.getLogger(__name__)

# The counter of select_one_message_queue is an int without its sign.
COUNTER_BITS: Final = 31
MAX_QUEUES_LISTED: Final = 32


@dataclass(frozen=True)
class PartitionWritten(WriterCommitMessage):
    """What one task wrote; queues and statuses by their names."""

    partition: int
    rows: int
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    perhaps_repeated: int = 0
    rows_by_queue: dict[str, int] = field(default_factory=dict)
    rows_by_status: dict[str, int] = field(default_factory=dict)


class RocketMQWriter(DataSourceArrowWriter):
    """Made on the driver and sent to the tasks; its base number is drawn once, so partition i begins at base + i."""

    def __init__(self, connection: Connection, options: SinkOptions, schema: SinkSchema) -> None:
        self._connection = connection
        self._options = options
        self._schema = schema
        self._base = random.getrandbits(COUNTER_BITS)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyrmq_spark.writing import PartitionWrite

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        return PartitionWrite(self._connection, self._options, self._schema, partition, self._base).run(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("%s", summary_line([message for message in messages if isinstance(message, PartitionWritten)]))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was sent stays sent. Spark does not know all of it: a task that was cut short reports nothing."""
        written = [message for message in messages if isinstance(message, PartitionWritten)]
        log.warning("the write failed; what its finished tasks wrote stays: %s", summary_line(written))


def summary_line(written: Sequence[PartitionWritten]) -> str:
    """Rows, bytes, rows per queue, and whatever was not plain."""
    queues: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    for task in written:
        queues.update(task.rows_by_queue)
        statuses.update(task.rows_by_status)
    statuses.pop(SendStatus.SEND_OK.name, None)
    listed = [f"{queue}: {rows}" for queue, rows in sorted(queues.items())[:MAX_QUEUES_LISTED]]
    more = [f"and {len(queues) - MAX_QUEUES_LISTED} queues more"] if len(queues) > MAX_QUEUES_LISTED else []
    retries = sum(task.retries for task in written)
    repeated = sum(task.perhaps_repeated for task in written)
    parts = [
        f"{sum(task.rows for task in written)} rows ({sum(task.bytes for task in written)} bytes) acknowledged in "
        f"{sum(task.requests for task in written)} requests of {len(written)} tasks",
        f"rows per queue: {', '.join(listed + more) or 'none'}",
        f"{retries} retries",
    ]
    parts += [f"stored, but {', '.join(f'{name}: {rows}' for name, rows in sorted(statuses.items()))}"] * bool(statuses)
    parts += [f"{repeated} rows perhaps stored twice"] * bool(repeated)
    return "; ".join(parts)
