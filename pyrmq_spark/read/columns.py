"""The possible columns of a read, and the error for a schema that does not fit them. Pure.

Names are compared without regard to case, as in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa
from pyspark.sql.types import StructType

from pyrmq_core.columnar import SOURCE_COLUMNS
from pyrmq_spark import kafka_hints
from pyrmq_spark.pyspark_releases import arrow_schema
from pyrmq_spark.spark_errors import InvalidColumn

SPARK_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.map_(pa.string(), pa.string()): "map<string,string>",
}
SOURCE_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    name: (SPARK_TYPES[column.type], "string") if name == "body" else (SPARK_TYPES[column.type],)
    for name, column in SOURCE_COLUMNS.items()
}


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """The schema of a reader: `columns` with the source's names, `spark_schema` with the user's spelling."""

    columns: pa.Schema
    spark_schema: pa.Schema

    def as_spark_schema(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.spark_schema)

    def of_topic(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        index = self.columns.get_field_index("topic")
        if index < 0:
            return batch
        return batch.set_column(index, self.columns.field(index), pa.array([topic] * batch.num_rows, pa.string()))


def source_schema(schema: StructType) -> SourceSchema:
    """Returns the schema to read. Raises `InvalidColumn`, with the possible columns, for an unfit schema."""
    by_name = {name.lower(): name for name in SOURCE_COLUMNS}
    seen: set[str] = set()
    names = []
    for field in schema.fields:
        name = by_name.get(field.name.lower())
        if name is None:
            kafka = kafka_hints.SOURCE_COLUMNS.get(field.name.lower())
            _refuse_source_column(f"there is no column {field.name}" + (f": {kafka}" if kafka else ""))
        if name in seen:
            _refuse_source_column(f"column {field.name} stands in it twice")
        if field.dataType.simpleString() not in SOURCE_TYPES[name]:
            expected = " or ".join(SOURCE_TYPES[name])
            fault = f"column {field.name} is {expected}, not {field.dataType.simpleString()}"
            _refuse_source_column(fault + _next_word(name, field.dataType.simpleString()))
        if SOURCE_COLUMNS[name].nullable and not field.nullable:
            _refuse_source_column(f"column {field.name} is null where a message has none, so it cannot be NOT NULL")
        seen.add(name)
        names.append(name)
    if not names:
        _refuse_source_column("it has no column")
    spark_schema = arrow_schema(schema)
    return SourceSchema(
        pa.schema([field.with_name(name) for name, field in zip(names, spark_schema, strict=True)]), spark_schema
    )


def _next_word(name: str, wanted: str) -> str:
    if name == "body":
        how = "parse_json" if wanted == "variant" else "cast or from_json"
        return f"; read it as string, and convert it by {how}"
    return "; read it as timestamp, and convert it by cast" if wanted == "timestamp_ntz" else ""


def _refuse_source_column(fault: str) -> NoReturn:
    possible = ", ".join(f"{name} {' or '.join(types)}" for name, types in SOURCE_TYPES.items())
    raise InvalidColumn(f"the schema of this read: {fault}; possible are {possible}")
