"""Columns both ways: types as Spark wants them, pruning, and every refusal by name, row and column."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyrmq_core.columnar import DEFAULT_COLUMNS, SOURCE_COLUMNS
from pyrmq_spark.pyspark_releases import arrow_schema
from pyrmq_spark.read.columns import SOURCE_TYPES, source_schema
from pyrmq_spark.source import SCHEMA
from pyrmq_spark.spark_errors import InvalidColumn, InvalidRow
from pyrmq_spark.write.columns import SINK_TYPES, sink_schema
from pyrmq_spark.write.rows import by_topic, check_rows

STRING, BINARY, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()
MAP = MapType(STRING, STRING)
FLAT = StructType([StructField("a", INT)])
HEADERS = ArrayType(StructType([StructField("key", STRING), StructField("value", BINARY)]))
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
SPARK = {
    "string": STRING,
    "binary": BINARY,
    "int": INT,
    "bigint": LONG,
    "timestamp": TimestampType(),
    "map<string,string>": MAP,
    "array<string>": ArrayType(STRING),
}


def frame(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


# --- Columns of a read


def test_the_default_columns_are_the_documented_ones() -> None:
    assert SCHEMA == (
        "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, tags string, keys string, "
        "body binary, properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, "
        "reconsumeTimes int"
    )
    assert ", ".join(f"{name} {SOURCE_TYPES[name][0]}" for name in DEFAULT_COLUMNS) == SCHEMA


def test_every_column_has_the_arrow_type_that_spark_expects_of_its_spark_type() -> None:
    for name, column in SOURCE_COLUMNS.items():
        expected = arrow_schema(frame(**{name: SPARK[SOURCE_TYPES[name][0]]}))
        assert expected == pa.schema([(name, column.type)]), name


def test_a_schema_prunes_reorders_and_keeps_the_users_spelling() -> None:
    schema = source_schema(frame(QUEUEOFFSET=LONG, body=STRING, bodyCrc=INT))
    assert schema.columns.names == ["queueOffset", "body", "bodyCrc"]
    assert schema.spark_schema.names == ["QUEUEOFFSET", "body", "bodyCrc"]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int64()), pa.array(["x"]), pa.array([2], pa.int32())], schema=schema.columns
    )
    assert schema.as_spark_schema(batch).schema == schema.spark_schema


def test_not_null_is_taken_where_nothing_is_null() -> None:
    expected = StructType([StructField("body", BINARY, nullable=False)])
    assert not source_schema(expected).spark_schema.field("body").nullable
    with pytest.raises(InvalidColumn, match="cannot be NOT NULL"):
        source_schema(StructType([StructField("tags", STRING, nullable=False)]))


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (frame(sequence=LONG), "there is no column sequence; possible are topic string, "),
        (frame(offset=LONG), "there is no column offset: Kafka's offset is queueOffset; possible are topic string, "),
        (frame(key=STRING, value=STRING), r"no column key: Kafka's key is shardingKey \(order\) or keys \(index\)"),
        (frame(value=BINARY), "there is no column value: Kafka's value is body"),
        (frame(Headers=STRING), "there is no column Headers: Kafka's headers are properties"),
        (frame(queueId=LONG), "column queueId is int, not bigint"),
        (frame(body=INT), "column body is binary or string, not int; read it as string, and convert it by cast or"),
        (frame(body=BINARY, BODY=STRING), "column BODY stands in it twice"),
        (frame(), "it has no column"),
        (frame(properties=MapType(STRING, INT)), r"column properties is map<string,string>, not map<string,int>"),
    ],
)
def test_a_schema_that_does_not_fit_lists_what_there_is(schema: StructType, fault: str) -> None:
    with pytest.raises(InvalidColumn, match=fault):
        source_schema(schema)


def test_only_the_default_columns_come_unasked() -> None:
    assert set(SOURCE_COLUMNS) - set(DEFAULT_COLUMNS) == {
        "offsetMsgId",
        "bornHost",
        "storeHost",
        "sysFlag",
        "flag",
        "bodyCrc",
        "storeSize",
        "commitLogOffset",
        "preparedTransactionOffset",
        "shardingKey",
        "systemProperties",
        "allProperties",
        "deliverAt",
        "delayLevel",
        "producerHost",
        "liteTopic",
    }


# --- Columns of a write


def test_a_frame_that_was_read_can_be_written() -> None:
    schema = sink_schema(frame(**{name: SPARK[SOURCE_TYPES[name][0]] for name in DEFAULT_COLUMNS}), None)
    assert set(schema.columns) == {"topic", "brokerName", "queueId", "tags", "keys", "body", "properties"}
    assert schema.left_out == ("queueOffset", "msgId", "bornTimestamp", "storeTimestamp", "reconsumeTimes")


@pytest.mark.parametrize("kind", [BINARY, STRING])
@pytest.mark.parametrize("name", ["body", "value", "BODY", "Value"])
def test_a_body_goes_by_two_names(name: str, kind: Any) -> None:
    assert sink_schema(frame(**{name: kind}), "orders").columns == {"body": 0}


def test_columns_come_in_any_order() -> None:
    schema = sink_schema(frame(Tags=STRING, topic=STRING, KEYS=ArrayType(STRING), body=BINARY, properties=MAP), None)
    assert schema.columns == {"tags": 0, "topic": 1, "keys": 2, "body": 3, "properties": 4}


def test_the_topic_option_wins_over_the_column() -> None:
    schema = sink_schema(frame(topic=STRING, body=STRING), "orders")
    assert (schema.topic, schema.columns) == ("orders", {"body": 1})


@pytest.mark.parametrize(
    ("schema", "topic", "fault"),
    [
        (
            frame(tags=STRING),
            "a",
            r"there is no body; to_json\(struct\(\*\)\) as body .*\. Columns are body binary or ",
        ),
        (
            frame(payload=STRING, key=STRING),
            "a",
            "there is no body; .* Columns are body binary or string, topic string, ",
        ),
        (frame(body=STRING), None, "neither a column topic nor the option topic"),
        (frame(body=INT), "a", r"body is binary or string, not int; write cast\(body as string\) as body"),
        (frame(value=FLAT), "a", r"value is binary or string, not struct<a:int>; write to_json\(value\) as body"),
        (frame(body=ArrayType(INT)), "a", r"not array<int>; write to_json\(body\) as body"),
        (frame(value=STRING, headers=HEADERS), "a", "headers: Kafka's headers are properties, a map<string,string>"),
        (frame(value=STRING, partition=INT), "a", "partition: Kafka's partition is brokerName and queueId together"),
        (frame(body=STRING, tags=INT), "a", "tags is string, not int"),
        (frame(body=STRING, keys=ArrayType(INT)), "a", "keys is string or array<string>, not array<int>"),
        (frame(body=STRING, properties=MapType(STRING, BINARY)), "a", "not map<string,binary>"),
        (frame(body=STRING, value=STRING), "a", "body and value are both body"),
        (frame(body=STRING, carrier=STRING), "a", "there is no column carrier"),
        (frame(body=STRING, queueId=INT), "a", "brokerName and queueId name a queue together"),
        (frame(body=STRING, delayLevel=LONG), "a", "delayLevel is int, not bigint"),
        (frame(body=STRING, key=STRING), "a", r"Kafka's key is shardingKey \(order\) or keys \(index\)"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_listing_what_does(
    schema: StructType, topic: str | None, fault: str
) -> None:
    with pytest.raises(InvalidColumn, match=fault):
        sink_schema(schema, topic)


def test_every_sink_type_is_a_spark_type() -> None:
    for name, types in SINK_TYPES.items():
        for kind in types:
            columns = {"body": STRING, "brokerName": STRING, "queueId": INT} | {name: SPARK[kind]}
            assert name in sink_schema(frame(**columns), None if name == "topic" else "a").columns


# --- Rows


def test_a_wrong_row_is_named_by_its_number_in_the_partition_and_column() -> None:
    rows = pa.record_batch({"body": [b"x", b"y", b""], "tags": ["a", "b", "c"]})
    with pytest.raises(InvalidRow) as error:
        check_rows(rows, 1000, NOW)
    assert str(error.value) == "row 1002, column body: it is empty; brokers refuse empty bodies"


def test_a_null_topic_is_named_with_the_option_that_helps() -> None:
    rows = pa.record_batch({"body": [b"x", b"y", b""], "topic": ["a", None, "c"]})
    with pytest.raises(InvalidRow, match=r"row 1, column topic: it is null; .* the option topic"):
        check_rows(rows, 0, NOW)


@pytest.mark.parametrize(
    ("column", "values", "fault"),
    [
        ("delayLevel", [None, 1, 18, 19], "row 3, column delayLevel: levels are 1 .* to 18"),
        ("delayLevel", [0], "row 0, column delayLevel"),
        (
            "deliverAt",
            [None, NOW, NOW + timedelta(days=3), NOW + timedelta(days=3, seconds=1)],
            "row 3, .*3 days ahead",
        ),
    ],
)
def test_a_delay_that_no_broker_takes_is_named(column: str, values: list[Any], fault: str) -> None:
    kind = pa.int32() if column == "delayLevel" else pa.timestamp("us", "UTC")
    rows = pa.record_batch({"body": [b"x"] * len(values), column: pa.array(values, kind)})
    with pytest.raises(InvalidRow, match=fault):
        check_rows(rows, 0, NOW)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("delayLevel", pa.scalar(1, pa.int32())),
        ("deliverAt", pa.scalar(NOW, pa.timestamp("us", "UTC"))),
        ("shardingKey", pa.scalar("k")),
        ("queueId", pa.scalar(3, pa.int32())),
    ],
)
def test_a_priority_stands_beside_nothing_that_chooses_the_queue_or_delays(column: str, value: pa.Scalar) -> None:
    columns = {"body": [b"x"] * 3, "priority": pa.array([None, 0, 7], pa.int32()), "brokerName": ["a"] * 3}
    columns[column] = pa.array([value.as_py(), None, value.as_py()], value.type)
    if column != "queueId":
        del columns["brokerName"]
    rows = pa.record_batch(columns)
    first = 1 if column == "queueId" else 2  # half a place is a fault of its own
    with pytest.raises(InvalidRow, match=rf"row {first}, "):
        check_rows(rows, 0, NOW)
    assert check_rows(rows.slice(0, 1), 0, NOW)
    negative = pa.record_batch({"body": [b"x"], "priority": pa.array([-1], pa.int32())})
    with pytest.raises(InvalidRow, match="row 0, column priority: it is below 0"):
        check_rows(negative, 0, NOW)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("delayLevel", pa.scalar(1, pa.int32())),
        ("deliverAt", pa.scalar(NOW, pa.timestamp("us", "UTC"))),
        ("shardingKey", pa.scalar("k")),
        ("priority", pa.scalar(0, pa.int32())),
    ],
)
def test_a_lite_topic_stands_beside_nothing_of_another_type(column: str, value: pa.Scalar) -> None:
    rows = pa.record_batch(
        {
            "body": [b"x"] * 3,
            "liteTopic": [None, "a-b_9", "A"],
            column: pa.array([value.as_py(), None, value.as_py()], value.type),
        }
    )
    with pytest.raises(InvalidRow, match=rf"row 2, column liteTopic: a row with {column} is in no lite topic"):
        check_rows(rows, 0, NOW)
    assert check_rows(rows.slice(0, 2), 0, NOW)


@pytest.mark.parametrize("name", ["", "a$b", "a b", "é", "a" * 65, "a\n"])
def test_a_name_that_no_lite_topic_has_is_refused(name: str) -> None:
    rows = pa.record_batch({"body": [b"x"] * 2, "liteTopic": ["a" * 64, name]})
    with pytest.raises(InvalidRow, match="row 1, column liteTopic: a lite topic's name has 1 to 64 letters"):
        check_rows(rows, 0, NOW)


def test_a_row_is_delayed_by_one_of_two_ways() -> None:
    rows = pa.record_batch(
        {
            "body": [b"x", b"x"],
            "delayLevel": pa.array([1, 1], pa.int32()),
            "deliverAt": pa.array([None, NOW], pa.timestamp("us", "UTC")),
        }
    )
    with pytest.raises(InvalidRow, match="row 1, column deliverAt: delayLevel and deliverAt exclude"):
        check_rows(rows, 0, NOW)


@pytest.mark.parametrize(
    ("broker_name", "queue_id", "fault"),
    [
        ("a", None, "column queueId: brokerName and queueId name a queue together"),
        (None, 1, "column queueId: brokerName and queueId name a queue together"),
        ("a", -1, "column queueId: it is below 0"),
        ("", 1, "column brokerName: it is empty"),
    ],
)
def test_half_a_queue_is_none(broker_name: str | None, queue_id: int | None, fault: str) -> None:
    rows = pa.record_batch(
        {
            "body": [b"x", b"x"],
            "brokerName": pa.array([None, broker_name], pa.string()),
            "queueId": pa.array([None, queue_id], pa.int32()),
        }
    )
    with pytest.raises(InvalidRow, match=f"row 1, {fault}"):
        check_rows(rows, 0, NOW)


def test_rows_are_divided_by_topic_in_their_order() -> None:
    rows = pa.record_batch({"body": [b"1", b"2", b"3", b"4"], "topic": ["b", "a", "b", "a"]})
    divided = [(topic, part.column("body").to_pylist()) for topic, part in by_topic(rows, None)]
    assert divided == [("b", [b"1", b"3"]), ("a", [b"2", b"4"])]
    assert [topic for topic, _ in by_topic(rows.drop_columns(["topic"]), "all")] == ["all"]
