"""A stream source in Python that does nothing but count: what any such source costs Spark for each micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyrmq_spark.source import SCHEMA


class TrivialSource(DataSource):
    """A source with the columns of `rocketmq`: `batches` batches of one row each."""

    @classmethod
    def name(cls) -> str:
        return "trivial"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return TrivialReader(int(self.options["batches"]))


class TrivialReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader with one partition a batch, which makes the batch's one row."""

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        pass

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(1)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"offset": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"offset": min(start["offset"] + 1, self._batches)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(start["offset"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        stamp = pa.scalar(0, pa.timestamp("us", tz="UTC"))
        columns: dict[str, pa.Array] = {name: pa.array(["x"]) for name in ("topic", "brokerName")}
        columns |= {"queueId": pa.array([0], pa.int32()), "queueOffset": pa.array([partition.value], pa.int64())}
        columns |= {name: pa.array(["x"]) for name in ("msgId", "tags", "keys")} | {"body": pa.array([b"x"])}
        columns["properties"] = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
        columns |= {name: pa.array([stamp.as_py()], stamp.type) for name in ("bornTimestamp", "storeTimestamp")}
        columns["reconsumeTimes"] = pa.array([0], pa.int32())
        yield pa.RecordBatch.from_pydict(columns)
