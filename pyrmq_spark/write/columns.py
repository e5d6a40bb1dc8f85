"""The columns that a write accepts, and the errors for a schema that does not fit. Pure.

`rows` checks the rows themselves. Names are compared without regard to case, as in Spark. Arrow is not loaded, since
the processes that plan a write and end it do not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from pyrmq_spark import kafka_hints
from pyrmq_spark.spark_errors import InvalidColumn

if TYPE_CHECKING:
    import pyarrow as pa

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
    "priority": ("int",),
    "liteTopic": ("string",),
    "flag": ("int",),
}
BODY_NAMES: Final = ("body", "value")


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """The columns of a written frame from which messages are made.

    `columns` has each column's index in the frame by the sink's name. `topic` is the option, which overrides the column
    of this name. `left_out` are columns of a read that cannot be written, such as `queueOffset`.
    """

    columns: Mapping[str, int]
    topic: str | None
    left_out: tuple[str, ...] = ()

    @property
    def message_type(self) -> str | None:
        """The type of messages with these columns, as a value of `messageType`, or None for normal messages.

        The first of these decides: a delay, a sharding key, a priority, a lite topic
        (common/attribute/TopicMessageType.java, parseFromMessageProperty).
        """
        if "delayLevel" in self.columns or "deliverAt" in self.columns:
            return "delay"
        if "shardingKey" in self.columns:
            return "fifo"
        if "priority" in self.columns:
            return "priority"
        return "lite" if "liteTopic" in self.columns else None

    def check_not_delayed(self) -> None:
        """Raises `InvalidColumn` if a column delays messages, which a committed write cannot have.

        A commit lists the offsets of rows, and a delayed message gets its offset in the topic only later.
        """
        for name in ("delayLevel", "deliverAt"):
            if name in self.columns:
                raise InvalidColumn(
                    f"{name}: delivery=committed lists rows that are in the topic, and delayed ones are not there yet; "
                    "leave the column out"
                )

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(list(self.columns.values())).rename_columns(list(self.columns))


def sink_schema(schema: StructType, topic: str | None) -> SinkSchema:
    """Returns the sink's columns of a schema. Raises `InvalidColumn` if it does not fit.

    `topic` is the option, which overrides the column of this name, or None without the option.
    """
    columns: dict[str, int] = {}
    left_out: list[str] = []
    if not any(name.lower() in BODY_NAMES for name in schema.names):
        # Checked first, since a column with a wrong name may be meant as the body.
        _refuse_sink_column("there is no body; to_json(struct(*)) as body makes one of a whole row")
    for number, field in enumerate(schema.fields):
        name = _sink_name(field.name)
        if name is None:
            left_out.append(field.name)
            continue
        if name in columns:
            other = schema.fields[columns[name]].name
            _refuse_sink_column(f"{other} and {field.name} are both {name}; keep one of them")
        if _simple_type(field.dataType) not in SINK_TYPES[name]:
            expected = " or ".join(SINK_TYPES[name])
            fault = f"{field.name} is {expected}, not {field.dataType.simpleString()}"
            if name == "body":
                fault += f"; write {_as_body(field)}"
            elif name == "deliverAt" and field.dataType.simpleString() == "timestamp_ntz":
                fault += f"; write cast({field.name} as timestamp), a time of the session's zone"
            _refuse_sink_column(fault)
        columns[name] = number
    if topic is None and "topic" not in columns:
        _refuse_sink_column("there is neither a column topic nor the option topic; one of them says where rows go")
    if ("brokerName" in columns) != ("queueId" in columns):
        _refuse_sink_column("brokerName and queueId name a queue together; give both or neither")
    if topic is not None:
        columns.pop("topic", None)
    return SinkSchema(columns, topic, tuple(left_out))


def _sink_name(spelling: str) -> str | None:
    lower = spelling.lower()
    if lower in BODY_NAMES:
        return "body"
    for name in SINK_TYPES:
        if lower == name.lower():
            return name
    if lower in kafka_hints.SINK_COLUMNS:
        _refuse_sink_column(f"{spelling}: {kafka_hints.SINK_COLUMNS[lower]}")
    from pyrmq_core.columnar import SOURCE_COLUMNS

    if lower in {name.lower() for name in SOURCE_COLUMNS}:
        return None
    return _refuse_sink_column(f"there is no column {spelling}")


def _as_body(field: StructField) -> str:
    if isinstance(field.dataType, StructType | ArrayType | MapType) or field.dataType.simpleString() == "variant":
        return f"to_json({field.name}) as body"
    return f"cast({field.name} as string) as body"


def _refuse_sink_column(fault: str) -> NoReturn:
    possible = ", ".join(f"{name} {' or '.join(types)}" for name, types in SINK_TYPES.items())
    raise InvalidColumn(f"the frame to write: {fault}. Columns are {possible}, in any order; body is required")


def _simple_type(data_type: DataType) -> str:
    # Whether elements may be null is left out of the type, since nulls are checked in each row.
    if isinstance(data_type, ArrayType) and isinstance(data_type.elementType, StringType):
        return "array<string>"
    if isinstance(data_type, MapType):
        return f"map<{data_type.keyType.simpleString()},{data_type.valueType.simpleString()}>"
    return data_type.simpleString()
