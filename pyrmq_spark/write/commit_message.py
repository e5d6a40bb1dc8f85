"""The identity of a task's write, and the task's report to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pyrmq_core import StoredRange

# Spark passes these to a stream's task: the id that a checkpoint keeps over restarts, and the number of the batch.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """The identity of one task's part of a write: query, batch and partition. A repeated task has an equal identity.

    `base` + `partition` is the number of the queue at which the task's round robin starts. `is_repeat` says that the
    task was attempted before.
    """

    query: str
    batch: int
    partition: int
    base: int
    is_repeat: bool = field(default=False, compare=False)

    @classmethod
    def of_batch(cls, write: str, base: int, number: int = 0) -> WriteAttempt:
        """Returns the identity of the present task's part of a batch write. Outside of a task it is partition 0.

        `write` names the write, or the application that numbers its writes with `number`.
        """
        context = TaskContext.get()
        if context is None:
            return cls(write, number, 0, base)
        return cls(write, number, context.partitionId(), base, context.attemptNumber() > 0)

    @classmethod
    def of_stream(cls) -> WriteAttempt:
        """Returns the attempt of a task in a stream. Outside of a task it is batch 0 of a query without a name."""
        context = TaskContext.get()
        if context is None:
            return cls("", 0, 0, 0)
        batch = int(context.getLocalProperty(BATCH_ID) or 0)
        query = context.getLocalProperty(QUERY_ID) or ""
        return cls(query, batch, context.partitionId(), batch, context.attemptNumber() > 0)


@dataclass(frozen=True)
class PartitionWritten(WriterCommitMessage):
    """The report of one task on its write, for the driver. Rows are counted by queue and status, both as texts.

    A repeated task reports only the rows of its last attempt, since Spark drops the reports of earlier ones. In a
    committed write, `ranges` are the queues and offsets of the rows, with the topics' names on brokers. With
    `is_batch_committed` the batch was committed before, and none of the rows was sent.
    """

    partition: int
    rows: int
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    perhaps_repeated: int = 0
    dead_lettered: int = 0
    rows_by_queue: dict[str, int] = field(default_factory=dict)
    rows_by_status: dict[str, int] = field(default_factory=dict)
    is_repeat: bool = False
    writer: str = ""
    number: int = 0
    is_batch_committed: bool = False
    ranges: tuple[StoredRange, ...] = ()
