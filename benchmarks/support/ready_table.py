"""A Python data source that yields one record batch over and over: Spark's own share of a read with its columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pyrmq_spark.source import SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PARTITIONS = 4
FIRST_MICROSECOND = 1_700_000_000_000_000


class ReadyTable(DataSource):
    """Four partitions with the columns of `rocketmq`; options: `rows`, `batchRows`, `bodyBytes`."""

    @classmethod
    def name(cls) -> str:
        return "readyTable"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(schema, *(int(self.options[name]) for name in ("rows", "batchRows", "bodyBytes")))


class ReadyReader(DataSourceReader):
    """A reader whose tasks yield the same batch again and again."""

    def __init__(self, schema: StructType, rows: int, batch_rows: int, body_bytes: int) -> None:
        self._schema = schema
        self._batches = rows // PARTITIONS // batch_rows
        self._batch_rows = batch_rows
        self._body_bytes = body_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        batch = ready_batch(to_arrow_schema(self._schema, timezone="UTC"), self._batch_rows, self._body_bytes)
        for _ in range(self._batches):
            yield batch


@cache
def ready_batch(schema: pa.Schema, rows: int, body_bytes: int) -> pa.RecordBatch:
    """Returns the batch; a worker keeps it for its next tasks, so that only the first of them makes it."""
    import pyarrow as pa

    made = columns(rows, body_bytes)
    return pa.RecordBatch.from_arrays([pa.array(made[field.name], field.type) for field in schema], schema=schema)


def columns(rows: int, body_bytes: int) -> dict[str, list[Any]]:
    """Returns values as messages of the other benchmarks have them."""
    ids = [f"7F0000010E8F18B4AAC24F4E{number:08X}" for number in range(rows)]
    keys = [f"key-{1_000_000 + number}" for number in range(rows)]
    times = list(range(FIRST_MICROSECOND, FIRST_MICROSECOND + rows))
    return {
        "topic": ["plain-1"] * rows,
        "brokerName": ["broker-a"] * rows,
        "queueId": [1] * rows,
        "queueOffset": list(range(rows)),
        "msgId": ids,
        "tags": ["TagA"] * rows,
        "keys": keys,
        "body": [b"x" * body_bytes] * rows,
        "properties": [
            [("UNIQ_KEY", one), ("KEYS", key), ("TAGS", "TagA"), ("WAIT", "true")]
            for one, key in zip(ids, keys, strict=True)
        ],
        "bornTimestamp": times,
        "storeTimestamp": times,
        "reconsumeTimes": [0] * rows,
    }
