"""The changes of a table from Canal's flat messages, in which every value is a text.

The format is that of Canal's FlatMessage.java and MQMessageUtils.java (1.1.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.types import StructType

from pyrmq_spark.cdc.changes import COLUMNS, CORRUPT, PLACE, RECORD, Corrupt, changes_of, fault_at, is_table, refusal_of
from pyrmq_spark.cdc.columns import Field, Row, row_and_keys, text_of
from pyrmq_spark.cdc.order import in_order
from pyrmq_spark.cdc.table_names import with_named_table
from pyrmq_spark.json_texts import quoted
from pyrmq_spark.spark_errors import InvalidChange, LackingColumn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BLOB_CHARSET: Final = "ISO-8859-1"  # the charset in which Canal writes the bytes of a BLOB
LOST_LETTER: Final = "\ufffd"  # written by Canal for bytes of a text that are not UTF-8
KINDS_BY_TYPE: Final = ("string", "binary", "timestamp")  # types whose values depend on MySQL's column type
# Members outside of rows that may be null in a message. If a column has such a name, `"name":null` in the body does not
# show that the row has the column.
NULL_OUTSIDE: Final = ("old", "data", "sql", "gtid", "pkNames", "mysqlType", "sqlType", "table", "database", "type")


def canal(
    frame: DataFrame,
    schema: str | StructType,
    *,
    key: str | Sequence[str],
    table: str,
    corrupt: Corrupt = "fail",
    timestamp_zone: str | None = None,
) -> DataFrame:
    """Returns the changes of one table from Canal's flat messages in `body`.

    The frame also needs `topic`, `brokerName`, `queueId` and `queueOffset`, for the order and the errors' texts.

    `schema` are the table's columns, as a struct or as DDL, `key` the columns of its primary key, `table` its name, or
    `database.table`. Messages of other tables, and statements (see `statements`), are skipped. A message is corrupt if
    it is not in Canal's format, has no table or time, lacks a column, or has a value that does not fit the schema. It
    ends the query with an error that names the message, or with `corrupt="skip"` is left out.

    `timestamp_zone` is the time zone of Canal's JVM, in which it writes TIMESTAMP. It is needed to read such a column
    as `timestamp`. `sequence` is `(read, queueOffset, index)`, where `read` is always 0 for Canal. In a batch, changes
    of a key in several queues are brought into order, or refused. A batch that has changes, but none of `table`, ends
    with an error. Streams and batches of `foreachBatch` are not checked for that.
    """
    rows = canal_rows(frame, schema, key=key, table=table, corrupt=corrupt, timestamp_zone=timestamp_zone)
    return with_named_table(in_order(rows, COLUMNS, logged=False), frame, table)


def canal_rows(
    frame: DataFrame,
    schema: str | StructType,
    *,
    key: str | Sequence[str],
    table: str,
    corrupt: Corrupt = "fail",
    timestamp_zone: str | None = None,
) -> DataFrame:
    """Returns Canal's changes in the form of `changes_of`. The arguments are those of `canal`."""
    row, keys = row_and_keys(schema, key)
    changes = parsed_messages(frame, row, table=table, corrupt=corrupt, timestamp_zone=timestamp_zone)
    refusal = refusal_of(corrupt, f"has values or keys that do not fit {text_of(row)}")
    return changes_of(changes, keys, corrupt, refusal)


def parsed_messages(
    frame: DataFrame, row: Row, *, table: str, corrupt: Corrupt = "fail", timestamp_zone: str | None = None
) -> DataFrame:
    """Returns the rows in Canal's messages, with the columns that `changes_of` needs.

    A row's error is a text in the column `fault`, and does not end the query here. A message that is not in Canal's
    format ends the query, or is left out with `corrupt="skip"`.
    """
    message = F.from_json(F.col("body").cast("string"), _message(row), RECORD).alias("m")
    is_statement = F.coalesce("m.isDdl", F.lit(False))
    is_change = F.col("m.type").isin("INSERT", "UPDATE", "DELETE") & ~is_statement
    is_own = is_table(table, F.col("m.database"), F.col("m.table"))
    has_rows = F.col("m.data").isNotNull()
    is_complete = F.when(is_change, has_rows & F.col("m.es").isNotNull() & is_own.isNotNull()).otherwise(
        is_statement | ~has_rows
    )
    is_message = F.col("m.corrupt").isNull() & F.col("m.type").isNotNull() & is_complete
    data = F.when(~F.coalesce(is_message, F.lit(False)), refusal_of(corrupt, "is no flat message of Canal"))
    rows = frame.select(message, "body", *PLACE).select(
        *PLACE,
        "m.type",
        "m.ts",
        F.col("m.mysqlType").alias("types"),
        F.col("m.old").alias("olds"),
        (F.size("m.data") - F.size("m.old")).alias("lead"),
        F.col("body").cast("string").alias("body"),
        F.posexplode(data.when(is_change & is_own, F.col("m.data"))).alias("index", "texts"),
    )
    # A row's map of changed columns to their old values. Canal omits the maps of the first rows, `lead` in number, if
    # they are empty, as when its filter hides the changed columns.
    old = F.get("olds", F.col("index") - F.col("lead"))
    is_delete = F.col("type") == "DELETE"
    is_update = (F.col("type") == "UPDATE") & F.col("old").isNotNull()
    # All columns are in one projection with `from_json`, which Spark does not compile with other operators. So it cuts
    # the expressions into methods that are short enough for the JVM to compile.
    images = {"now": _now(row, timestamp_zone), "was": F.when(is_update, _row_before(row, timestamp_zone))}
    lacking = F.when(~is_delete, _lacking(row))
    rows = rows.withColumns({"old": old}).withColumns({**images, "lacking": lacking})
    return rows.select(
        *PLACE,
        F.lower("type").alias("op"),
        F.when(is_delete, F.col("now")).otherwise(F.col("was")).alias("before"),
        F.when(~is_delete, F.col("now")).alias("after"),
        _fits(row).alias("fits"),
        _fault(row, timestamp_zone).alias("fault"),
        "index",
        F.lit(None).cast("array<string>").alias("unavailable"),
        F.lit(0).cast("bigint").alias("read"),
        F.col("ts").alias("written"),
        F.lit(None).cast("string").alias("transaction"),
        F.lit(None).cast("struct<file:string,pos:bigint>").alias("log"),
        F.lit(False).alias("snapshot"),
    )


def _message(row: Row) -> str:
    texts = ", ".join(f"{quoted(field.name)} string" for field in row)
    types = ", ".join(f"{quoted(field.name)} string" for field in row if field.kind in KINDS_BY_TYPE)
    strings = f"database string, `table` string, type string, {CORRUPT} string"
    maps = f"data array<struct<{texts}>>, old array<map<string, string>>"
    types = types or "`no column` string"
    return f"{strings}, isDdl boolean, es bigint, ts bigint, {maps}, mysqlType struct<{types}>"


def _lacking(row: Row) -> Column:
    """Returns the name of the first declared column that the row of a message lacks, or null.

    Spark reads an absent member as null. So for each null, the body itself is searched for the member. Spark evaluates
    these searches only where they are needed, since they are in `when`.
    """
    texts, body = F.col("texts"), F.col("body")
    maps = F.from_json(body, "data array<map<string, string>>").getField("data")
    is_absent = {field.name: ~F.map_contains_key(F.get(maps, F.col("index")), field.name) for field in row}
    lacking: list[Column] = []
    for field in row:
        name = field.name
        look = F.when(is_absent[name], F.lit(name))
        if name not in NULL_OUTSIDE:
            stands = body.contains(f'"{name}":null') | body.contains(f'"{name}": null')
            look = F.when(~stands, look)
        lacking.append(F.when(texts.getField(name).isNull(), look))
    return F.coalesce(*lacking)


def _typed(text: Column, field: Field, zone: str | None) -> Column:
    if field.kind not in KINDS_BY_TYPE:
        return text.try_cast(field.type)
    kind = F.col("types").getField(field.name)
    if field.kind == "string":
        has_labels = kind.startswith("enum(") | kind.startswith("set(")
        label = F.when(text.rlike("^[0-9]+$"), _label(text, kind)).otherwise(text)
        return F.when(has_labels, label).otherwise(text)
    if field.kind == "binary":
        octets = F.encode(text, BLOB_CHARSET)
        size = F.regexp_extract(kind, r"^\w+\((\d+)\)", 1).try_cast("int")
        digits = F.lpad(F.conv(text, 10, 16), F.ceil(size / 8).cast("int") * 2, F.lit("0"))
        padded = F.rpad(octets, size, F.lit(b"\0"))
        return (
            F.when(kind.startswith("binary("), padded).when(kind.startswith("bit("), F.unhex(digits)).otherwise(octets)
        )
    if zone is None:
        return text.try_cast(field.type)
    is_instant = kind.startswith("timestamp")
    return F.when(is_instant, F.concat_ws(" ", text, F.lit(zone))).otherwise(text).try_cast(field.type)


def _label(text: Column, kind: Column) -> Column:
    """Returns the label of an ENUM, or the labels of a SET, for the number that Canal writes. `kind` is the type."""
    number = text.try_cast("bigint")
    labels = F.split(F.regexp_extract(kind, r"(?s)^\w+\('(.*)'\)", 1), "','")
    of_enum = F.when(number == 0, "").otherwise(F.get(labels, (number - 1).cast("int")))
    chosen = F.filter(
        labels, lambda _, index: number.bitwiseAND(F.call_function("shiftleft", F.lit(1).cast("bigint"), index)) != 0
    )
    of_set = F.when(number.isNotNull(), F.array_join(chosen, ","))
    label = F.when(kind.startswith("enum("), of_enum).otherwise(of_set)
    return F.replace(label, F.lit("''"), F.lit("'"))


def _now(row: Row, zone: str | None) -> Column:
    texts = F.col("texts")
    values = (_typed(texts.getField(field.name), field, zone).alias(field.name) for field in row)
    return F.when(texts.isNotNull(), F.struct(*values))


def _row_before(row: Row, zone: str | None) -> Column:
    old = F.col("old")
    values = []
    for field in row:
        is_changed = F.map_contains_key(old, field.name)
        text = F.when(is_changed, F.element_at(old, field.name)).otherwise(F.col("texts").getField(field.name))
        values.append(_typed(text, field, zone).alias(field.name))
    return F.struct(*values)


def _fits(row: Row) -> Column:
    fits = fits_before = F.lit(True)
    for field in row:
        fits &= F.col("texts").getField(field.name).isNull() | F.col("now").getField(field.name).isNotNull()
        is_lost = F.col("was").getField(field.name).isNull()
        fits_before &= ~F.when(is_lost, F.element_at("old", field.name).isNotNull()).otherwise(F.lit(False))
    return fits & F.when(F.col("was").isNotNull(), fits_before).otherwise(F.lit(True))


def _fault(row: Row, zone: str | None) -> Column:
    lacks = (
        "lacks the column ",
        F.col("lacking"),
        ", which the schema has: renamed, or left out by binlog_row_image or Canal's filter (absent is not null). "
        "Read it with the columns that the table has, and set binlog_row_image=FULL",
    )
    fault = F.when(F.col("lacking").isNotNull(), fault_at(LackingColumn, *lacks))
    for field in row:
        if field.kind not in KINDS_BY_TYPE:
            continue
        kind = F.col("types").getField(field.name)
        name = f"has `{field.name}` as a "
        fault = fault.when(kind == "uuid", fault_at(InvalidChange, name, "uuid, whose bytes Canal loses: use char(36)"))
        if field.kind == "string":
            is_address = kind.isin("inet4", "inet6")
            fault = fault.when(
                is_address, fault_at(InvalidChange, name, kind, ", of which Canal writes bytes: declare binary")
            )
            lost = " of another character set than UTF-8, of which Canal lost letters: convert the column to utf8mb4"
            is_lossy = F.col("texts").getField(field.name).contains(LOST_LETTER)
            fault = fault.when(is_lossy, fault_at(InvalidChange, name, "text", lost))
        if field.kind == "timestamp" and zone is None:
            words = (
                "TIMESTAMP in the time zone of Canal's JVM: name it (timestamp_zone='UTC'), or declare timestamp_ntz"
            )
            fault = fault.when(kind.startswith("timestamp"), fault_at(InvalidChange, name, words))
    return fault
