"""Change data capture: the messages of Canal and Debezium as rows of changes, by expressions of Spark SQL alone.

A change row has `op` (insert, update or delete), `key`, `before`, `after` and `sequence`, which orders the changes of a
key. A changed key is a delete and an insert. The formats: Canal's FlatMessage.java and MQMessageUtils.java (1.1.8), in
which every value is a text; Debezium's envelope in JSON, with or without `schema` and `payload` around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.types import ArrayType, BinaryType, BooleanType, LongType, MapType, StringType, StructField, StructType

from pyrmq_spark.spark_errors import InvalidChange, InvalidOption, as_spark_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["canal", "debezium", "statements"]

Corrupt: TypeAlias = Literal["fail", "skip"]

CORRUPT: Final = "corrupt"
RECORD: Final = {"columnNameOfCorruptRecord": CORRUPT}
PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
BLOB_CHARSET: Final = "ISO-8859-1"  # in which Canal writes the bytes of a BLOB
# Statements of a Debezium topic: a truncation, and a message that PostgreSQL's log carries beside changes.
NO_ROWS: Final = ("t", "m")
BLANKS: Final = " \t\r\n"


def canal(
    frame: DataFrame, schema: str | StructType, *, key: str | Sequence[str], table: str, corrupt: Corrupt = "fail"
) -> DataFrame:
    """Returns the changes of one table from Canal's flat messages in `body`; the frame needs `queueOffset`, too.

    `schema` are the table's columns, as a struct or as DDL, `key` those of its primary key, `table` its name, or
    `database.table`. Messages of other tables, and statements (see `statements`), are passed over. A message that is
    none of Canal's, or has a value that does not fit the schema, ends the query with its place, or with
    `corrupt="skip"` is left out. `sequence` is `(es, queueOffset, index)`.
    """
    row, keys = _row_and_keys(frame, schema, key)
    message = F.from_json(F.col("body").cast("string"), _canal_message(row), RECORD).alias("m")
    is_change = F.col("m.type").isin("INSERT", "UPDATE", "DELETE") & ~F.coalesce("m.isDdl", F.lit(False))
    is_own = _is_table(table, F.col("m.database"), F.col("m.table"))
    has_rows = F.col("m.data").isNotNull() & F.col("m.table").isNotNull()
    is_message = F.col("m.corrupt").isNull() & F.col("m.type").isNotNull() & (~is_change | has_rows)
    data = F.when(~F.coalesce(is_message, F.lit(False)), _refusal(frame, corrupt, "is no flat message of Canal"))
    rows = frame.select(message, *_place(frame)).select(
        *_place(frame),
        "m.type",
        "m.es",
        F.col("m.old").alias("olds"),
        F.posexplode(data.when(is_change & is_own, F.col("m.data"))).alias("index", "texts"),
    )
    old = F.get("olds", F.col("index"))  # the columns that the update changed, with their values before
    before = [
        F.when(F.map_contains_key(old, field.name), F.element_at(old, field.name))
        .otherwise(F.col("texts").getField(field.name))
        .alias(field.name)
        for field in row
    ]
    is_update = F.col("type") == "UPDATE"
    rows = rows.select("*", F.when(is_update & old.isNotNull(), F.struct(*before)).alias("textsBefore"))
    rows = rows.select(
        "*", _typed("texts", row).alias("now"), F.when(is_update, _typed("textsBefore", row)).alias("was")
    )
    is_delete = F.col("type") == "DELETE"
    changes = rows.select(
        *_place(frame),
        F.lower("type").alias("op"),
        F.when(is_delete, F.col("now")).otherwise(F.col("was")).alias("before"),
        F.when(~is_delete, F.col("now")).alias("after"),
        (_fits("texts", "now", row) & _fits("textsBefore", "was", row)).alias("fits"),
        F.array("es", "queueOffset", F.col("index").cast("bigint") * 2).alias("position"),
    )
    names = ("es", "queueOffset", "index")
    return _changes(changes, keys, names, _refusal(frame, corrupt, f"has values or keys that do not fit {_text(row)}"))


def debezium(
    frame: DataFrame, schema: str | StructType, *, key: str | Sequence[str], table: str, corrupt: Corrupt = "fail"
) -> DataFrame:
    """Returns the changes of one table from Debezium's envelopes in `body`; arguments and the rest as in `canal`.

    `schema` has the types of the JSON: a DATE is an int of days. Rows of a snapshot are inserts, tombstones are passed
    over. `sequence` is the position in the source, of MySQL (`file`, `pos`, `row`) or PostgreSQL (`lsn` as `pos`), then
    the `queueOffset`, which alone orders the changes of other databases.
    """
    row, keys = _row_and_keys(frame, schema, key)
    text = F.col("body").cast("string")
    read = frame.select(*_place(frame), text.alias("text"), F.from_json(text, _envelope(row), RECORD).alias("m"))
    parts = [
        F.when(F.col("m.payload").isNotNull(), F.col(f"m.payload.{part}")).otherwise(F.col(f"m.{part}")).alias(part)
        for part in ("op", "before", "after", "source", "ddl")
    ]
    rows = read.select(*_place(frame), "text", "m.corrupt", *parts)
    is_other = F.col("source.table").isNotNull() & ~_is_table(
        table, F.coalesce("source.db", F.lit("")), F.col("source.table"), F.col("source.schema")
    )
    words = F.when(F.col("op").isin("c", "r"), "insert").when(F.col("op") == "u", "update")
    words = words.when(F.col("op") == "d", "delete")
    passed = is_other | F.col("op").isin(*NO_ROWS) | F.col("ddl").isNotNull()
    passed = F.coalesce(passed, F.lit(False)) | (F.col("op").isNull() & F.coalesce(_is_tombstone(), F.lit(False)))
    number = F.coalesce("source.pos", "source.lsn", F.lit(0))
    changes = rows.select(
        *_place(frame),
        F.when(F.coalesce(passed, F.col("text").isNull()), "pass").otherwise(words).alias("op"),
        *("before", "after"),
        (F.col("corrupt").isNull() & F.col("source.table").isNotNull()).alias("fits"),
        F.coalesce("source.file", F.lit("")).alias("file"),
        F.array(number, F.coalesce("source.row", F.lit(0)), F.col("queueOffset"), F.lit(0)).alias("position"),
    )
    names = ("file", "pos", "row", "queueOffset", "index")
    refusal = _refusal(frame, corrupt, f"is no envelope of Debezium with a key and rows of {_text(row)}")
    return _changes(changes, keys, names, refusal)


def statements(frame: DataFrame) -> DataFrame:
    """Returns the statements (DDL) in Canal's and Debezium's messages: `database`, `table`, `statement`, `time`.

    Among them are truncations, which delete rows without a change of any. The frame's `queueOffset` follows.
    """
    inner = "ddl string, databaseName string, op string, ts_ms bigint, source struct<db:string,`table`:string>"
    form = f"isDdl boolean, sql string, database string, `table` string, es bigint, payload struct<{inner}>, {inner}"
    read = frame.select(F.from_json(F.col("body").cast("string"), form).alias("m"), "queueOffset")
    part = {name: F.coalesce(F.col(f"m.payload.{name}"), F.col(f"m.{name}")) for name in ("ddl", "op", "ts_ms")}
    source = F.coalesce("m.payload.source", "m.source")
    database = F.coalesce("m.database", "m.payload.databaseName", "m.databaseName", source["db"])
    rows = read.select(
        database.alias("database"),
        F.coalesce("m.table", source["table"]).alias("table"),
        F.when(F.col("m.isDdl"), F.col("m.sql"))
        .when(part["ddl"].isNotNull(), part["ddl"])
        .when(part["op"] == "t", "TRUNCATE")
        .alias("statement"),
        F.timestamp_millis(F.coalesce("m.es", part["ts_ms"])).alias("time"),
        "queueOffset",
    )
    return rows.where("statement IS NOT NULL")


def _changes(rows: DataFrame, keys: Sequence[str], names: Sequence[str], refusal: Column) -> DataFrame:
    """Returns the change rows: `position` and the columns of `names` before it become `sequence`."""
    before, after = F.col("before"), F.col("after")
    key_before, key_after = _key(before, keys), _key(after, keys)
    op = F.col("op")
    lacks_key = ((op != "insert") & before.isNotNull() & _has_null(before, keys)) | (
        (op != "delete") & _has_null(after, keys)
    )
    lacks_key |= (op == "delete") & before.isNull()
    fits = F.col("fits") & op.isNotNull() & ~lacks_key

    def change(word: str, key: Column, old: Column, new: Column, part: int) -> Column:
        head = [F.col(name) for name in names if name == "file"]
        numbers = names[len(head) :]
        tail = [F.get("position", F.lit(index)).alias(name) for index, name in enumerate(numbers[:-1])]
        last = (F.get("position", F.lit(len(numbers) - 1)) + part).alias(numbers[-1])
        sequence = F.struct(*head, *tail, last)
        return F.struct(
            F.lit(word).alias("op"),
            key.alias("key"),
            old.alias("before"),
            new.alias("after"),
            sequence.alias("sequence"),
        )

    none_before, none_after = (F.when(F.lit(False), column) for column in (before, after))
    gone = change("delete", key_before, before, none_after, 0)
    is_moved = before.isNotNull() & ~key_before.eqNullSafe(key_after)
    changed = (
        F.when(op == "pass", None)
        .when(~F.coalesce(fits, F.lit(False)), refusal)
        .when(op == "insert", F.array(change("insert", key_after, none_before, after, 0)))
        .when(op == "delete", F.array(gone))
        .when(is_moved, F.array(gone, change("insert", key_after, none_before, after, 1)))
        .otherwise(F.array(change("update", key_after, before, after, 0)))
    )
    return rows.select(F.explode(changed).alias("change")).select("change.*")


def _key(row: Column, keys: Sequence[str]) -> Column:
    return F.struct(*(row.getField(name).alias(name) for name in keys))


def _has_null(row: Column, keys: Sequence[str]) -> Column:
    lacking = row.isNull()
    for name in keys:
        lacking |= row.getField(name).isNull()
    return lacking


def _refusal(frame: DataFrame, corrupt: Corrupt, fault: str) -> Column:
    """Returns the end of the query, with the message's place; null, for no row, if such messages are left out."""
    if corrupt == "skip":
        return F.lit(None)
    position = F.concat_ws("/", *(F.col(name).cast("string") for name in _place(frame)))
    return F.raise_error(F.concat(F.lit(f"[{InvalidChange.condition}] the message at "), position, F.lit(f" {fault}")))


def _typed(texts: str, row: StructType) -> Column:
    """Returns Canal's texts in the types of the columns; null where one does not fit, and for no row at all."""
    values = []
    for field in row:
        text = F.col(texts).getField(field.name)
        is_blob = isinstance(field.dataType, BinaryType)
        value = F.encode(text, BLOB_CHARSET) if is_blob else text.try_cast(field.dataType)
        values.append(value.alias(field.name))
    return F.when(F.col(texts).isNotNull(), F.struct(*values))


def _fits(texts: str, typed: str, row: StructType) -> Column:
    fits = F.lit(True)
    for field in row:
        fits &= F.col(texts).getField(field.name).isNull() | F.col(typed).getField(field.name).isNotNull()
    return fits


def _canal_message(row: StructType) -> StructType:
    texts = StructType([StructField(field.name, StringType()) for field in row])
    strings = [StructField(name, StringType()) for name in ("database", "table", "type", CORRUPT)]
    return StructType(
        [
            *strings,
            StructField("isDdl", BooleanType()),
            StructField("es", LongType()),
            StructField("data", ArrayType(texts)),
            StructField("old", ArrayType(MapType(StringType(), StringType()))),
        ]
    )


def _envelope(row: StructType) -> StructType:
    """Returns the fields of an envelope, and those of one inside of `payload`."""
    strings = [StructField(name, StringType()) for name in ("db", "schema", "table", "file")]
    source = StructType([*strings, *(StructField(name, LongType()) for name in ("pos", "row", "lsn"))])
    envelope = StructType(
        [
            StructField("op", StringType()),
            StructField("before", row),
            StructField("after", row),
            StructField("source", source),
            StructField("ddl", StringType()),
        ]
    )
    return StructType([StructField("payload", envelope), *envelope.fields, StructField(CORRUPT, StringType())])


def _is_tombstone() -> Column:
    """Returns whether `text` has no value: it is blank, `null`, or an envelope's wrapper with nothing in it."""
    names = F.json_object_keys("text")  # of other than an object it is null
    others = F.array_except(names, F.array(F.lit("payload"), F.lit("schema")))
    is_wrapper = F.array_contains(names, "payload") & (F.size(others) == 0)
    is_empty = F.get_json_object("text", "$.payload").isNull() & F.col("corrupt").isNull()
    return F.btrim("text", F.lit(BLANKS)).isin("", "null") | (is_wrapper & is_empty)


def _is_table(table: str, database: Column, name: Column, schema: Column | None = None) -> Column:
    """Returns whether a message is of the table `name`, `database.name` or, at PostgreSQL, `schema.name`."""
    owner, _, own_name = table.rpartition(".")
    is_own = name == own_name
    if not owner:
        return is_own
    return is_own & (
        database == owner if schema is None else (database == owner) | (F.coalesce(schema, F.lit("")) == owner)
    )


def _row_and_keys(
    frame: DataFrame, schema: str | StructType, key: str | Sequence[str]
) -> tuple[StructType, tuple[str, ...]]:
    """Returns the table's columns, each of which may be null, and the names of its key."""
    fields = schema if isinstance(schema, StructType) else frame.sparkSession.createDataFrame([], schema).schema
    keys = (key,) if isinstance(key, str) else tuple(key)
    with as_spark_error("cdc"):
        if not keys or set(keys) - set(fields.names):
            raise InvalidOption(f"key={key!r} has to name columns of the schema: {', '.join(fields.names)}")
        for name in ("body", "queueOffset"):
            if name not in frame.columns:
                raise InvalidOption(f"the frame has no column {name}: read the topic with it")
    return StructType([StructField(field.name, field.dataType) for field in fields]), keys


def _place(frame: DataFrame) -> list[str]:
    return [name for name in PLACE if name in frame.columns]


def _text(row: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in row)
