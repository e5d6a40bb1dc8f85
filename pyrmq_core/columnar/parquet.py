"""Parquet files of messages, with the columns of a read: written batch by batch, and read in small parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pyrmq_core.columnar.decoding.columns import schema_of
from pyrmq_core.errors import InvalidArgument

# The columns that are needed to send a message again, and those that say where and when it was stored.
COLUMNS: Final = (
    *("topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "shardingKey", "liteTopic", "flag"),
    *("bornTimestamp", "storeTimestamp", "reconsumeTimes", "properties", "body"),
)
READ_COLUMNS: Final = (
    "brokerName",
    "queueId",
    "tags",
    "keys",
    "shardingKey",
    "liteTopic",
    "flag",
    "properties",
    "body",
)
# The most rows that are read together, and the most bytes of their columns.
ROWS_AT_ONCE: Final = 512
BYTES_AT_ONCE: Final = 8 * 1024 * 1024

SCHEMA: Final = schema_of(COLUMNS)
# Columns with a dictionary and statistics. For bodies, these would be further copies: a body of 60 MiB would take 600
# MiB instead of 300.
SHORT_COLUMNS: Final = [
    *(name for name in COLUMNS if name not in ("body", "properties")),
    *("properties.key_value.key", "properties.key_value.value"),
]


class ParquetWriter:
    """The writer of one Parquet file. The file cannot be read before `close` has written its footer."""

    def __init__(self, file: IO[bytes]) -> None:
        self._writer = pq.ParquetWriter(
            file, SCHEMA, compression="zstd", use_dictionary=SHORT_COLUMNS, write_statistics=SHORT_COLUMNS
        )

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._writer.is_open = False  # otherwise the writer's finalizer closes it again and prints the failure


def read_rows(file: IO[bytes], name: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file that a `ParquetWriter` wrote, or of any file with columns of the same names.

    At most 512 rows are in memory at once, and fewer if they are large. Equal bodies of these rows are one object.
    Raises `InvalidArgument`, which names the file, if it cannot be read or lacks the column `body`.
    """
    try:
        schema = pq.ParquetFile(file).schema_arrow
        there = [column for column in READ_COLUMNS if column in schema.names]
        if "body" not in there:
            raise InvalidArgument(f"{name} has no column body; it has {', '.join(schema.names)}")
        once = ["body"] if schema.field("body").type in (pa.binary(), pa.string()) else []
        parquet = pq.ParquetFile(file, read_dictionary=once)
        for number in range(parquet.num_row_groups):
            rows = _rows_at_once(parquet.metadata.row_group(number))
            for batch in parquet.iter_batches(rows, row_groups=[number], columns=there):
                bodies = batch.column("body")
                for row, body in zip(
                    batch.drop_columns(["body"]).to_pylist() or [{}] * len(batch), bodies, strict=True
                ):
                    yield {**row, "body": body.as_py()}
    except (pa.ArrowException, OSError) as error:  # a damaged page is an OSError
        raise InvalidArgument(f"{name} cannot be read as Parquet: {error}") from error


def _rows_at_once(group: pq.RowGroupMetaData) -> int:
    if not group.num_rows:
        return 1
    mean_bytes = max(1, int(group.total_byte_size) // int(group.num_rows))
    return max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // mean_bytes))
