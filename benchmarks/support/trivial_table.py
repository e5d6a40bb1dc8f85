"""A Python data source that does nothing but what Spark asks of one: the floor that ours is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PARTITIONS = 4
ROWS_A_PARTITION = 250


class TrivialTable(DataSource):
    """Four partitions of a few rows that are made on the spot; a sink that counts."""

    @classmethod
    def name(cls) -> str:
        return "trivialTable"

    def schema(self) -> str:
        return "body binary, keys string, tags string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TrivialReader()

    def writer(self, schema: StructType, overwrite: bool) -> TrivialWriter:
        return TrivialWriter()


class TrivialReader(DataSourceReader):
    """A reader that makes its rows without a network."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield pa.record_batch(
            {
                "body": pa.array([b"x" * 100] * ROWS_A_PARTITION, pa.binary()),
                "keys": pa.array(["key"] * ROWS_A_PARTITION),
                "tags": pa.array(["TagA"] * ROWS_A_PARTITION),
            }
        )


class TrivialWriter(DataSourceArrowWriter):
    """A writer that drops its rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
