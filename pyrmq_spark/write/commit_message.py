"""A task's place in its write, and its report to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

# What Spark tells a task of its stream: the id that a checkpoint keeps over restarts, and the number of the batch.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """Which write a task is part of: the same for a repeat of it. `base` is what its counters of queues begin with."""

    query: str
    batch: int
    partition: int
    base: int

    @classmethod
    def of_batch(cls, write: str, base: int) -> WriteAttempt:
        """In a task of a batch write."""
        context = TaskContext.get()
        return cls(write, 0, 0 if context is None else context.partitionId(), base)

    @classmethod
    def of_stream(cls) -> WriteAttempt:
        """In a task of a stream; outside of one it is the first batch of a query without a name."""
        context = TaskContext.get()
        if context is None:
            return cls("", 0, 0, 0)
        batch = int(context.getLocalProperty(BATCH_ID) or 0)
        return cls(context.getLocalProperty(QUERY_ID) or "", batch, context.partitionId(), batch)


@dataclass(frozen=True)
class PartitionWritten(WriterCommitMessage):
    """What one task wrote; queues and statuses by their names."""

    partition: int
    rows: int
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    perhaps_repeated: int = 0
    dead_lettered: int = 0
    rows_by_queue: dict[str, int] = field(default_factory=dict)
    rows_by_status: dict[str, int] = field(default_factory=dict)
