"""Errors of unreadable Debezium envelopes, whose texts name the setting to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc.changes import fault_at
from pyrmq_spark.cdc.columns import Row
from pyrmq_spark.cdc.debezium_values import (
    AS_TEXT,
    DECIMAL,
    SCHEMA,
    VARIABLE_DECIMAL,
    after_fields,
    first_name,
    hidden,
    is_flattened,
    token_of,
)
from pyrmq_spark.spark_errors import InvalidChange, LackingColumn

if TYPE_CHECKING:
    from pyspark.sql import Column

Unavailable: TypeAlias = Literal["fail", "mark"]

# By the declared type of a column: what to do if a value does not fit it.
REMEDIES: Final = {
    "decimal": "set decimal.handling.mode=string (and bigint.unsigned.handling.mode=precise), and for NaN or Infinity "
    "declare string",
    "date": "send the schema with each message (converter.schemas.enable=true), or declare the type of the JSON",
    "timestamp": "declare timestamp_ntz for a column without a time zone and send the schema with each message "
    "(converter.schemas.enable=true), or declare the type of the JSON",
    "timestamp_ntz": "send the schema with each message (converter.schemas.enable=true), declare timestamp for a "
    "column with a time zone, or declare the type of the JSON",
    "binary": "set binary.handling.mode=bytes, and send the schema with each message (converter.schemas.enable=true), "
    "or declare string",
}
DECIMAL_WORD: Final = 'Decimal"'  # in the schema of a decimal of bytes: the end of DECIMAL and of VARIABLE_DECIMAL
# The texts of defaults that Debezium writes for columns that are not null.
DEFAULTS: Final = r"^(|false|-?0(\.0+)?(E-?\d+)?|1970-01-01Z?([ T]00:00:00(\.0+)?Z?)?|00:00:00(\.0+)?Z?)$"
# Members outside of rows, or in values of several parts, that may be null, as `canal_rows.NULL_OUTSIDE`.
NULL_OUTSIDE: Final = (
    "before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns", "snapshot", "db", "sequence",
    "schema", "table", "txId", "lsn", "xmin", "origin", "origin_lsn", "server_id", "gtid", "file", "pos", "row",
    "thread", "query", "payload", "ddl", "change_lsn", "commit_lsn", "event_serial_no", "scn", "commit_scn",
    "rs_id", "ssn", "redo_thread", "user_name", "default", "wkb", "srid", "x", "y", "scale", "value",
)  # fmt: skip


def is_unavailable(name: str) -> Column:
    return F.col("unavailable").isNotNull() & F.array_contains("unavailable", name)


def fault_of(row: Row, keys: Sequence[str], table: str, unavailable: Unavailable, *, full_images: bool) -> Column:
    op, after, of_postgres = F.col("op"), F.col("after"), F.col("is_of_postgres")
    column, missing = F.col("lacking"), F.get("unavailable", F.lit(0))
    vague = ("is of the table ", F.col("vague"), f", and table={table!r} could mean several: name the schema")
    absent = ("lacks the column ", column, ", which the schema has: absent is not null. It was renamed, left out or "
              "added later, or is generated. Read the table with the columns that its messages have")  # fmt: skip
    unchanged = "has no value of the column ", missing, ", as it is long and did not change: set REPLICA IDENTITY FULL"
    fault = (
        F.when(F.col("vague").isNotNull(), fault_at(InvalidChange, *vague))
        .when(column.isNotNull(), fault_at(LackingColumn, *absent))
        .when(missing.isNotNull() & (op != "u"), fault_at(LackingColumn, *unchanged, " (its key changed)"))
    )
    if unavailable == "fail":
        hint = ", or read with unavailable='mark' and keep the value that the table has"
        fault = fault.when(missing.isNotNull(), fault_at(LackingColumn, *unchanged, hint))
    is_partial = of_postgres & (op == "u") & F.col("before").isNull()
    silent = first_name(row, [hidden(after.getField(field.name), field) for field in row])
    words = ("may lack the column ", silent, ": Debezium writes null for long arrays that did not change. "
             "Set REPLICA IDENTITY FULL")  # fmt: skip
    flat = first_name(row, [is_flattened(after.getField(field.name), field) for field in row])
    dimensions = ("has nulls alone in the array ", flat, ", as Debezium writes one of several dimensions. Store it in "
                  "another type, or leave the column out")  # fmt: skip
    fault = fault.when(is_partial & silent.isNotNull(), fault_at(LackingColumn, *words))
    if full_images:
        fault = fault.when(is_partial, fault_at(InvalidChange, "has no row before it: REPLICA IDENTITY is not FULL"))
    else:
        zero = "deletes a key of zeros, which Debezium also writes for a key that REPLICA IDENTITY USING INDEX leaves "
        zero += "out: set REPLICA IDENTITY FULL, and read with full_images=True"
        fault = fault.when(of_postgres & (op == "d") & _may_be_of_index(row, keys), fault_at(InvalidChange, zero))
    fault = fault.when(of_postgres & flat.isNotNull(), fault_at(InvalidChange, *dimensions))
    encoded = F.col("encoded")
    remedy = "`, which is declared string: set decimal.handling.mode=string, or declare a decimal"
    fault = fault.when(encoded.isNotNull(), fault_at(InvalidChange, "has a decimal as bytes in `", encoded, remedy))
    return _unfit(fault, row, full_images=full_images)


def decimal_as_bytes(row: Row) -> Column:
    """Returns the name of the first column declared string that a message's schema calls a decimal of bytes, or null.

    Only messages that may have a schema are searched, since the search takes a tenth of the time.
    """
    may_be = F.col("is_wrapped") & F.col("text").contains(DECIMAL_WORD)
    fields = after_fields(F.from_json("text", f"schema {SCHEMA}").getField("schema")["fields"])
    names = [field.name for field in row if field.kind == "string"]
    cases = (F.when(token_of(fields, name)["name"].isin(DECIMAL, VARIABLE_DECIMAL), F.lit(name)) for name in names)
    return F.when(may_be, F.coalesce(F.lit(None).cast("string"), *cases))


def _unfit(fault: Column, row: Row, *, full_images: bool) -> Column:
    is_fragment = F.col("is_of_postgres") & (F.col("op") == "d") & F.lit(not full_images)
    for field in row:
        if field.kind not in AS_TEXT:
            continue
        raw, value = (F.col(name).getField(field.name) for name in ("after", "now"))
        old, was = (F.col(name).getField(field.name) for name in ("before", "was"))
        is_unfit = raw.isNotNull() & value.isNull() & ~F.coalesce(is_unavailable(field.name), F.lit(False))
        is_unfit |= ~is_fragment & old.isNotNull() & was.isNull()
        shown = F.substring(F.coalesce(raw, old), 1, 40)
        token = F.coalesce(F.col("tokens").getField(field.name)["name"], F.lit("no name of a type"))
        remedy = f"), which is not read as {field.type}: {REMEDIES[field.kind]}"
        fault = fault.when(is_unfit, fault_at(InvalidChange, f"has `{field.name}` = ", shown, " (", token, remedy))
    return fault


def lacking(row: Row) -> Column:
    """Returns the name of the first declared column that the row of a message lacks, or null.

    Spark reads an absent member as null. So for each null, the body itself is searched for the member.
    """
    text, after = F.col("text"), F.col("after")
    image = F.when(F.col("is_wrapped"), F.get_json_object(text, "$.payload.after")).otherwise(
        F.get_json_object(text, "$.after")
    )
    names = F.json_object_keys(image)
    cases = []
    for field in row:
        look = F.when(~F.array_contains(names, field.name), F.lit(field.name))
        if field.name not in NULL_OUTSIDE:
            stands = text.contains(f'"{field.name}":null') | text.contains(f'"{field.name}": null')
            look = F.when(~stands, look)
        cases.append(F.when(after.getField(field.name).isNull(), look))
    return F.when(F.col("op").isin("c", "u", "r") & after.isNotNull(), F.coalesce(*cases))


def _may_be_of_index(row: Row, keys: Sequence[str]) -> Column:
    """Returns the condition that zeros in a deleted row's key may be defaults that Debezium wrote for unknown values.

    With REPLICA IDENTITY USING INDEX PostgreSQL reports only the index's columns of a deleted row.
    """

    def is_zero(name: str) -> Column:
        typed, written = (F.col(image).getField(name).cast("string").rlike(DEFAULTS) for image in ("was", "before"))
        return typed | written

    of_keys = [F.coalesce(is_zero(name), F.lit(False)) for name in keys]
    others = [
        F.col("before").getField(field.name).isNotNull() & ~is_zero(field.name)
        for field in row
        if field.name not in keys and field.kind not in ("array", "map", "struct", "binary")
    ]
    any_zero, all_zero, has_value = F.lit(False), F.lit(True), F.lit(False)
    for is_zero_key in of_keys:
        any_zero, all_zero = any_zero | is_zero_key, all_zero & is_zero_key
    for is_value in others:
        has_value |= F.coalesce(is_value, F.lit(False))
    return any_zero & (all_zero | has_value)
