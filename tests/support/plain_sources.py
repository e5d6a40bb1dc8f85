"""Data sources of PySpark alone, by which `tests/spark/test_spark_truths.py` looks at what Spark does with one.

Spark's Python processes load this module, so it imports nothing of the project. Each source appends a line a call to
the file `calls` of the folder that its option `folder` names.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

EVENT_SECONDS = 60.0


def note(folder: str, *words: object) -> None:
    with (Path(folder) / "calls").open("a") as calls:
        calls.write(" ".join(map(str, words)) + "\n")


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def wait_for(path: Path) -> None:
    """Waits in a task for a file that another task makes."""
    ends_at = time.monotonic() + EVENT_SECONDS
    while not path.exists():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"{path.name} did not come")
        time.sleep(0.01)


class Batches(DataSource):
    """A reader of the Arrow batches in the file that the option `batches` names, one batch a file."""

    @classmethod
    def name(cls) -> str:
        return "truth_batches"

    def reader(self, schema: StructType) -> BatchesReader:
        note(self.options["folder"], "reader", *schema.names)
        return BatchesReader(self.options["folder"])


class BatchesReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def partitions(self) -> Sequence[InputPartition]:
        note(self.folder, "partitions")
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for path in sorted(Path(self.folder).glob("*.arrow")):
            with pa.ipc.open_stream(path) as batches:
                yield from batches


class Sink(DataSource):
    """A writer of rows; the option `fails` names a partition whose task raises."""

    @classmethod
    def name(cls) -> str:
        return "truth_sink"

    def schema(self) -> str:
        return "a bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return OneRow()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if "folder" not in self.options:
            raise ValueError(f"[SINK_OPTIONS] overwrite={overwrite} options={sorted(self.options)}")
        note(self.options["folder"], "writer", overwrite)
        return SinkWriter(self.options["folder"], int(self.options.get("fails", "-1")))


class OneRow(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)


class Wrote(WriterCommitMessage):
    def __init__(self, partition: int, batches: int) -> None:
        self.partition = partition
        self.batches = batches

    def __str__(self) -> str:
        return f"{self.partition}:{self.batches}"


class SinkWriter(DataSourceArrowWriter):
    def __init__(self, folder: str, fails: int) -> None:
        self.folder = folder
        self.fails = fails

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId() if context else -1
        if number == 2:
            (Path(self.folder) / "third").touch()
        schemas = [batch.schema for batch in iterator]
        for schema in schemas[:1]:
            note(self.folder, "types", *(f"{field.name}={field.type}".replace(" ", "") for field in schema))
        if number == self.fails:
            wait_for(Path(self.folder) / "third")
            raise ValueError("[SINK_REFUSED] this task fails")
        return Wrote(number, len(schemas))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        note(self.folder, "commit", *messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        note(self.folder, "abort", *messages)


class Stream(DataSource):
    """A stream of the numbers below 8, four a batch where Spark lets a source limit it, and a sink for it."""

    @classmethod
    def name(cls) -> str:
        return "truth_stream"

    def schema(self) -> str:
        return "a bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _limited(self.options["folder"])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        note(self.options["folder"], "streamWriter")
        return StreamSink()


class StreamNumbers(DataSourceStreamReader):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        note(self.folder, "initialOffset")
        return {"next": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802 - as before 4.2
        return {"next": 8}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        note(self.folder, "partitions", start["next"], end["next"])
        return [InputPartition((start["next"], end["next"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((number,) for number in range(*partition.value))

    def commit(self, end: dict[str, int]) -> None:
        note(self.folder, "commit", end["next"])


def _limited(folder: str) -> StreamNumbers:
    try:
        from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow
    except ImportError:  # before 4.2
        return StreamNumbers(folder)

    class Limited(StreamNumbers, SupportsTriggerAvailableNow):
        def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
            return ReadMaxRows(4)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            note(self.folder, "prepare")

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # type: ignore[override]  # noqa: N802 - Spark's name
            return {"next": min(8, start["next"] + limit.max_rows)}

    return Limited(folder)


class StreamSink(DataSourceStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
