"""A Python data source that yields ready-made record batches, and a sink that drops rows: what Spark itself takes.

With `broker` and `topic` its tasks also pull that topic and drop its messages undecoded: what Spark, the broker and
receiving take together. It loads nothing of the connector that is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from benchmarks.support.pulls import pulled
from benchmarks.support.user_rows import CASES, Case

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# The columns of `rocketmq`.
SCHEMA: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, tags string, keys string, "
    "body binary, properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int"
)
QUEUES: Final = 4
# Fewer rows are those of one task, as in a read of ours.
ROWS_OF_ONE_TASK: Final = 8_000
FIRST_MICROSECOND: Final = 1_700_000_000_000_000


class ReadyTable(DataSource):
    """A source with the columns of `rocketmq`, and a sink for streams.

    Options: `rows`, `batchRows`, and `case`, one of `user_rows`; for a stream `batches`, to which the rows are divided;
    `broker` and `topic`, which is pulled whole.
    """

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(ReadyRows.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return ReadyStreamReader(ReadyRows.of(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DroppingWriter:  # noqa: N802 - Spark's name
        return DroppingWriter()


class TaskRows(InputPartition):
    """The number of rows of one task, and the queues that it pulls if any are pulled."""

    def __init__(self, rows: int, queues: Sequence[int]) -> None:
        super().__init__(None)
        self.rows = rows
        self.queues = queues


@dataclass(frozen=True, slots=True)
class ReadyRows:
    """The options of a read."""

    rows: int
    batch_rows: int
    case: str
    batches: int
    broker: str | None
    topic: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadyRows:
        return cls(
            rows=int(options["rows"]),
            batch_rows=int(options["batchRows"]),
            case=options["case"],
            batches=int(options.get("batches", "1")),
            broker=options.get("broker"),
            topic=options.get("topic", ""),
        )

    def tasks(self, rows: int) -> list[InputPartition]:
        """Returns the tasks that read so many rows."""
        if rows < ROWS_OF_ONE_TASK:
            return [TaskRows(rows, range(QUEUES))]
        return [TaskRows(rows // QUEUES, [queue]) for queue in range(QUEUES)]

    def read(self, task: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
        """Yields the same batch over and over: as many rows as the task has, or as the pulled queues hold."""
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(task, TaskRows)
        batch = ready_batch(to_arrow_schema(schema, timezone="UTC"), self.batch_rows, self.case)
        waiting = 0
        for rows in (task.rows,) if self.broker is None else pulled(self.broker, self.topic, task.queues):
            waiting += rows
            while waiting >= self.batch_rows:
                waiting -= self.batch_rows
                yield batch
        if waiting:
            yield batch.slice(0, waiting)


class ReadyReader(DataSourceReader):
    """The reader of a batch."""

    def __init__(self, ready: ReadyRows, schema: StructType) -> None:
        self._ready = ready
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return self._ready.tasks(self._ready.rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._ready.read(partition, self._schema)


class ReadyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream, whose offset is a number of rows."""

    def __init__(self, ready: ReadyRows, schema: StructType) -> None:
        self._ready = ready
        self._schema = schema

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        pass

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._ready.rows // self._ready.batches)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"rows": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"rows": min(start["rows"] + self._ready.rows // self._ready.batches, self._ready.rows)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._ready.tasks(end["rows"] - start["rows"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._ready.read(partition, self._schema)


class DroppingWriter(DataSourceStreamArrowWriter):
    """A writer that counts its rows and keeps none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()


@cache
def ready_batch(schema: pa.Schema, rows: int, case: str) -> pa.RecordBatch:
    """Returns the batch; a worker keeps it for its next tasks, so that only the first of them makes it."""
    import pyarrow as pa

    arrays = columns(rows, CASES[case])
    return pa.RecordBatch.from_arrays([pa.array(arrays[field.name], field.type) for field in schema], schema=schema)


def columns(rows: int, case: Case) -> dict[str, list[Any]]:
    """Returns values as messages of the other benchmarks have them."""
    ids = [f"7F0000010E8F18B4AAC24F4E{number:08X}" for number in range(rows)]
    times = list(range(FIRST_MICROSECOND, FIRST_MICROSECOND + rows))
    return {
        "topic": ["plain-1"] * rows,
        "brokerName": ["broker-a"] * rows,
        "queueId": [1] * rows,
        "queueOffset": list(range(rows)),
        "msgId": ids,
        "tags": list(map(case.tag, range(rows))),
        "keys": list(map(case.key, range(rows))),
        "body": list(map(case.body, range(rows))),
        "properties": [list(case.properties(number).items()) for number in range(rows)],
        "bornTimestamp": times,
        "storeTimestamp": times,
        "reconsumeTimes": [0] * rows,
    }
