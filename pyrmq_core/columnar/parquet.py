"""Parquet files of messages, with the columns of a read: written batch by batch, and read back in small parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pyrmq_core.columnar.decoding.columns import schema_of
from pyrmq_core.errors import InvalidArgument

# All parts with which a message can be sent again, and where and when it was stored.
COLUMNS: Final = (
    *("topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "shardingKey", "flag"),
    *("bornTimestamp", "storeTimestamp", "reconsumeTimes", "properties", "body"),
)
READ_COLUMNS: Final = ("brokerName", "queueId", "tags", "keys", "shardingKey", "flag", "properties", "body")
ROWS_AT_ONCE: Final = 4096

SCHEMA: Final = schema_of(COLUMNS)


class ParquetWriter:
    """The writer of one Parquet file; `close` writes the file's footer."""

    def __init__(self, file: IO[bytes]) -> None:
        self._writer = pq.ParquetWriter(file, SCHEMA, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        """Writes a batch of `SCHEMA`."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Writes the footer, without which the file cannot be read."""
        try:
            self._writer.close()
        finally:
            self._writer.is_open = False  # otherwise its finalizer closes it again and prints the failure


def read_rows(file: IO[bytes], name: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file by `ParquetWriter`, or of any file with columns of the same names.

    The column `body` is needed. Raises `InvalidArgument`, which names the file, if it cannot be read.
    """
    try:
        parquet = pq.ParquetFile(file)
        there = [column for column in READ_COLUMNS if column in parquet.schema_arrow.names]
        if "body" not in there:
            raise InvalidArgument(f"{name} has no column body; it has {', '.join(parquet.schema_arrow.names)}")
        for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=there):
            yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise InvalidArgument(f"{name} cannot be read as Parquet: {error}") from error
