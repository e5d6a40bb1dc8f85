"""Columns on both sides: what a read can give, what a write takes, and what is said when a schema does not fit. Pure.

What stands in a frame's rows is looked at in `rows`.
Names are compared without regard to case, as Spark compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from pyrmq_core.columnar import DEFAULT_COLUMNS, SOURCE_COLUMNS
from pyrmq_spark.conditions import InvalidColumn

# Spark's name of each Arrow type that a source column has.
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


# --- What a read gives.


def default_schema() -> str:
    """The source's columns as DDL."""
    return ", ".join(f"{name} {SOURCE_TYPES[name][0]}" for name in DEFAULT_COLUMNS)


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """What a reader builds: `columns` by the source's names, `given` as the user names them. Same order, same types."""

    columns: pa.Schema
    given: pa.Schema

    def as_given(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch under the names and nullabilities that Spark expects."""
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.given)

    def of_topic(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        """The batch with every row's topic named so, where there is such a column."""
        place = self.columns.get_field_index("topic")
        if place < 0:
            return batch
        return batch.set_column(place, self.columns.field(place), pa.array([topic] * batch.num_rows, pa.string()))


def source_schema(schema: StructType) -> SourceSchema:
    """Raises `InvalidColumn` for a column that messages do not have, or another type, listing what there is."""
    by_name = {name.lower(): name for name in SOURCE_COLUMNS}
    seen: set[str] = set()
    names = []
    for field in schema.fields:
        name = by_name.get(field.name.lower())
        if name is None:
            _refuse_source_column(f"there is no column {field.name}")
        if name in seen:
            _refuse_source_column(f"column {field.name} stands in it twice")
        if field.dataType.simpleString() not in SOURCE_TYPES[name]:
            wanted = " or ".join(SOURCE_TYPES[name])
            _refuse_source_column(f"column {field.name} is {wanted}, not {field.dataType.simpleString()}")
        if SOURCE_COLUMNS[name].nullable and not field.nullable:
            _refuse_source_column(f"column {field.name} is null where a message has none, so it cannot be NOT NULL")
        seen.add(name)
        names.append(name)
    if not names:
        _refuse_source_column("it has no column")
    given = to_arrow_schema(schema, timezone="UTC")
    return SourceSchema(pa.schema([field.with_name(name) for name, field in zip(names, given, strict=True)]), given)


def _refuse_source_column(fault: str) -> NoReturn:
    possible = ", ".join(f"{name} {' or '.join(types)}" for name, types in SOURCE_TYPES.items())
    raise InvalidColumn(f"the schema of this read: {fault}; possible are {possible}")


# --- What a write takes.

SINK_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "shardingKey": ("string",),
    "brokerName": ("string",),
    "queueId": ("int",),
    "properties": ("map<string,string>",),
    "delayLevel": ("int",),
    "deliverAt": ("timestamp",),
    "flag": ("int",),
}
BODY_NAMES: Final = ("body", "value")


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """Which column of a frame is which part of a message: the sink's name to the column's number."""

    columns: Mapping[str, int]
    topic: str | None

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The frame's columns under the sink's names."""
        names = list(self.columns)
        return pa.RecordBatch.from_arrays([batch.column(self.columns[name]) for name in names], names=names)


def sink_schema(schema: StructType, topic: str | None) -> SinkSchema:
    """Raises `InvalidColumn` before a row is sent; `topic` is the option, which wins over the column."""
    columns: dict[str, int] = {}
    for number, field in enumerate(schema.fields):
        name = _sink_name(field.name)
        if name in columns:
            other = schema.fields[columns[name]].name
            _refuse_sink_column(f"{other} and {field.name} are both {name}; keep one of them")
        if _simple_type(field.dataType) not in SINK_TYPES[name]:
            wanted = " or ".join(SINK_TYPES[name])
            _refuse_sink_column(f"{field.name} is {wanted}, not {field.dataType.simpleString()}")
        columns[name] = number
    if "body" not in columns:
        _refuse_sink_column("there is no body")
    if topic is None and "topic" not in columns:
        _refuse_sink_column("there is neither a column topic nor the option topic; one of them says where rows go")
    if ("brokerName" in columns) != ("queueId" in columns):
        _refuse_sink_column("brokerName and queueId name a queue together; give both or neither")
    if topic is not None:
        columns.pop("topic", None)
    return SinkSchema(columns, topic)


def _sink_name(given: str) -> str:
    lower = given.lower()
    if lower in BODY_NAMES:
        return "body"
    for name in SINK_TYPES:
        if lower == name.lower():
            return name
    if lower == "key":
        return _refuse_sink_column(
            "key: Kafka's key is shardingKey (order) or keys (index); rename it to what is meant"
        )
    if lower in {name.lower() for name in SOURCE_COLUMNS}:
        return _refuse_sink_column(
            f"{given} is written by RocketMQ, not by a sender; a frame that was read is written back with "
            'select("topic", "body", "tags", "keys")'
        )
    return _refuse_sink_column(f"there is no column {given}")


def _refuse_sink_column(fault: str) -> NoReturn:
    possible = ", ".join(f"{name} {' or '.join(types)}" for name, types in SINK_TYPES.items())
    raise InvalidColumn(f"the frame to write: {fault}. Columns are {possible}, in any order; body is required")


def _simple_type(given: DataType) -> str:
    """Without whether elements may be null: each row is looked at."""
    if isinstance(given, ArrayType) and isinstance(given.elementType, StringType):
        return "array<string>"
    if isinstance(given, MapType):
        return f"map<{given.keyType.simpleString()},{given.valueType.simpleString()}>"
    return given.simpleString()
