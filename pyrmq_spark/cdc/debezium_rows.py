"""The changes of a table from Debezium's envelopes in JSON, with or without `schema` and `payload` around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.types import StructType

from pyrmq_spark.cdc.changes import (
    COLUMNS,
    CORRUPT,
    PLACE,
    RECORD,
    Corrupt,
    changes_of,
    is_table,
    is_without_schema,
    refusal_of,
)
from pyrmq_spark.cdc.columns import Row, ddl, row_and_keys, text_of
from pyrmq_spark.cdc.debezium_faults import Unavailable, decimal_as_bytes, fault_of, lacking
from pyrmq_spark.cdc.debezium_values import (
    AS_TEXT,
    SCHEMA,
    Parsed,
    Placeholder,
    read_type,
    typed,
    unescaped,
)
from pyrmq_spark.cdc.order import in_order
from pyrmq_spark.cdc.table_names import with_named_table
from pyrmq_spark.json_texts import has_numbers, is_number, quoted, with_marks, without_marks
from pyrmq_spark.spark_errors import InvalidOption, as_spark_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PLACEHOLDER: Final = "__debezium_unavailable_value"
# Debezium's operations without rows: a truncation, and a logical message of PostgreSQL.
NO_ROWS: Final = ("t", "m")
BLANKS: Final = " \t\r\n"
SOURCE: Final = (
    "connector string, db string, `schema` string, `table` string, file string, pos bigint, lsn bigint, txId string"
)


def debezium(
    frame: DataFrame,
    schema: str | StructType,
    *,
    key: str | Sequence[str],
    table: str,
    corrupt: Corrupt = "fail",
    unavailable: Unavailable = "fail",
    placeholder: str = PLACEHOLDER,
    full_images: bool = False,
) -> DataFrame:
    """Returns the changes of one table from Debezium's envelopes in `body`.

    Other arguments and errors are as in `canal`. `table` is `table`, `database.table`, `schema.table` or
    `database.schema.table`. Rows of a snapshot are inserts, and tombstones are skipped. `sequence` has the fields
    `(read, queueOffset, index)`. `read` is the time in ns at which Debezium read the change, since its sink sends the
    changes of a batch in any order.

    `schema` has the types of the JSON, in which a DATE is an int of days. A column of type `date`, `timestamp_ntz`, or
    `decimal` in bytes, is read by the schema in the message (`schemas.enable`). Without that schema, a value of more
    than one meaning is refused.

    PostgreSQL does not send an unchanged long value, for which Debezium writes the `placeholder`. Such a change ends
    the query. With `unavailable="mark"` the changes have another column, `unavailable`, with the names of those columns
    of `after`, which are null there. Set `full_images` if PostgreSQL's table has REPLICA IDENTITY FULL. Without it,
    `before` of deletes has only the key, since the other columns have values that no row had.

    After a kill Debezium sends changes again, with another `sequence` and the same `keys` and `source`. A table of all
    versions (SCD 2) needs each only once, so `frame` is then `messages.withColumn("source",
    get_json_object(col("body").cast("string"), "$.source"))` with `dropDuplicates(["topic", "keys", "source"])`, or
    `$.payload.source` where messages have a schema. A stream keeps each `source` in its state, and must not divide a
    queue (`minPartitions`).
    """
    rows = debezium_rows(
        frame,
        schema,
        key=key,
        table=table,
        corrupt=corrupt,
        unavailable=unavailable,
        placeholder=placeholder,
        full_images=full_images,
    )
    names = (*COLUMNS, "unavailable") if unavailable == "mark" else COLUMNS
    return with_named_table(in_order(rows, names, logged=True), frame, table)


def debezium_rows(
    frame: DataFrame,
    schema: str | StructType,
    *,
    key: str | Sequence[str],
    table: str,
    corrupt: Corrupt = "fail",
    unavailable: Unavailable = "fail",
    placeholder: str = PLACEHOLDER,
    full_images: bool = False,
) -> DataFrame:
    """Returns Debezium's changes in a column `change`, with each message's queue, offset and order hints (`HINTS`)."""
    row, keys = row_and_keys(schema, key)
    if unavailable not in ("fail", "mark"):
        with as_spark_error("cdc"):
            raise InvalidOption(f"unavailable={unavailable!r} has to be 'fail' or 'mark'")
    changes = parsed_envelopes(
        frame, row, keys, table=table, unavailable=unavailable, placeholder=placeholder, full_images=full_images
    )
    refusal = refusal_of(corrupt, f"is no envelope of Debezium with a key and rows of {text_of(row)}")
    return changes_of(changes, keys, corrupt, refusal)


def parsed_envelopes(
    frame: DataFrame,
    row: Row,
    keys: Sequence[str],
    *,
    table: str,
    unavailable: Unavailable = "fail",
    placeholder: str = PLACEHOLDER,
    full_images: bool = False,
) -> DataFrame:
    """Returns the rows in Debezium's messages, with the columns that `changes_of` needs.

    A row's error is a text in the column `fault`, and does not end the query here.
    """
    parts = _values(_parts_of(frame, row), row, table, Placeholder(placeholder))
    op = F.col("op")
    is_fragment = F.col("is_of_postgres") & (op == "d") & F.lit(not full_images)
    return parts.select(
        *PLACE,
        F.col("word").alias("op"),
        F.when(is_fragment, _key_alone(row, keys)).otherwise(F.col("was")).alias("before"),
        F.col("now").alias("after"),
        F.col("is_row").alias("fits"),
        F.when(F.col("word") != "pass", fault_of(row, keys, table, unavailable, full_images=full_images)).alias(
            "fault"
        ),
        F.lit(0).alias("index"),
        "unavailable",
        "read",
        F.lit(None).cast("bigint").alias("written"),
        "transaction",
        "log",
        (op == "r").alias("snapshot"),
    )


def _parts_of(frame: DataFrame, row: Row) -> DataFrame:
    text = F.col("body").cast("string")
    columns = ", ".join(f"{quoted(field.name)} {read_type(field)}" for field in row)
    message = F.from_json(text, _envelope(columns, SCHEMA if _has_tokens(row) else None), RECORD)
    # Each part repeats `from_json`: Spark computes equal expressions of a projection once, and writes only the parts to
    # the row. A separate projection of the message would also write the complete message.
    payload = message.getField("payload")

    def part(name: str) -> Column:
        return F.when(payload.isNotNull(), payload.getField(name)).otherwise(message.getField(name))

    fields = message.getField("schema").getField("fields")
    return frame.select(
        *PLACE,
        text.alias("text"),
        *(part(name).alias(name) for name in ("op", "before", "after", "source", "ts_ms", "ts_ns")),
        part("ddl").isNotNull().alias("is_statement"),
        payload.isNotNull().alias("is_wrapped"),
        message.getField(CORRUPT).isNotNull().alias("is_corrupt"),
        *([_tokens(row, fields)] if _has_tokens(row) else []),
    )


def _values(parts: DataFrame, row: Row, table: str, placeholder: Placeholder) -> DataFrame:
    """Returns the rows after and before each change in the table's types (`now`, `was`), and columns for `fault_of`.

    All are in one projection with `from_json`, whose expressions Spark cuts into methods that are short enough for the
    JVM to compile. A further projection would write the messages again.
    """
    text, op, source, is_corrupt = (F.col(name) for name in ("text", "op", "source", "is_corrupt"))
    owner = source["db"], source["table"], source["schema"]
    is_own = is_table(table, *owner)
    words = F.when(op.isin("c", "r"), "insert").when(op == "u", "update").when(op == "d", "delete")
    has_no_rows = ~is_own | op.isin(*NO_ROWS) | F.col("is_statement")
    # Spark evaluates a value in `when` only if the condition is true, but an operand that several ANDs share always.
    is_tombstone = F.when(op.isNull(), _is_tombstone(text, is_corrupt))
    is_passed = F.coalesce(has_no_rows, F.lit(False)) | F.coalesce(is_tombstone, text.isNull())
    is_row = ~is_corrupt & is_own
    is_of_postgres = F.coalesce(source["connector"] == "postgresql", F.lit(False))
    is_unavailable = _is_unavailable(row, placeholder, is_of_postgres & op.isin("c", "u", "r"))
    values = {
        "word": F.when(is_passed, "pass").otherwise(words),
        "is_row": is_row,
        "vague": F.when(is_own & is_without_schema(table, *owner), F.concat_ws(".", source["schema"], source["table"])),
        "is_of_postgres": is_of_postgres,
        "now": _image(row, "after", is_unavailable),
        "was": _image(row, "before", {}),
        "lacking": F.when(~is_passed & is_row, lacking(row)),
        "encoded": F.when(~is_passed & is_row, decimal_as_bytes(row)),
        "unavailable": _names(is_unavailable),
        "read": F.coalesce("ts_ns", F.col("ts_ms") * 1_000_000, F.lit(0)),
        "transaction": source["txId"],
        "log": _place_in_log(source),
    }
    tokens = ["tokens"] if _has_tokens(row) else []
    columns = (value.alias(name) for name, value in values.items())
    return parts.select(*PLACE, "op", "before", "after", *tokens, *columns)


def _envelope(columns: str, schema: str | None) -> str:
    rows = f"before struct<{columns}>, after struct<{columns}>"
    envelope = f"op string, {rows}, source struct<{SOURCE}>, ddl string, ts_ms bigint, ts_ns bigint"
    outside = f"`schema` {schema}, " if schema else ""
    return f"{outside}payload struct<{envelope}>, {envelope}, {CORRUPT} string"


def _has_tokens(row: Row) -> bool:
    return any(field.kind in AS_TEXT for field in row)


def _place_in_log(source: Column) -> Column:
    number = F.coalesce(source["lsn"], source["pos"])
    return F.when(
        number.isNotNull(), F.struct(F.coalesce(source["file"], F.lit("")).alias("file"), number.alias("pos"))
    )


def _tokens(row: Row, fields: Column) -> Column:
    """Returns the types of the columns in `AS_TEXT` by the schema in a message, or null without a schema."""

    # A search by a lambda would compute `from_json` again.
    def named(structs: Column, name: str) -> Column:
        return F.get(structs, F.array_position(structs["field"], F.lit(name)).cast("int") - 1)

    columns = named(fields, "after")["fields"]
    tokens = F.struct(*(named(columns, field.name).alias(field.name) for field in row if field.kind in AS_TEXT))
    return F.when(F.size(fields) > 0, tokens).alias("tokens")


def _is_tombstone(text: Column, is_corrupt: Column) -> Column:
    """Returns whether a text is a tombstone: blank, `null`, or an envelope with an empty `payload`."""
    names = F.json_object_keys(text)  # null if the text is no object
    others = F.array_except(names, F.array(F.lit("payload"), F.lit("schema")))
    is_wrapper = F.array_contains(names, "payload") & (F.size(others) == 0)
    is_empty = F.get_json_object(text, "$.payload").isNull() & ~is_corrupt
    return F.btrim(text, F.lit(BLANKS)).isin("", "null") | (is_wrapper & is_empty)


def _is_unavailable(row: Row, placeholder: Placeholder, may_be: Column) -> dict[str, Column]:
    """Returns by column the condition that PostgreSQL left out its unchanged long value. Each implies `may_be`."""
    conditions = {field.name: placeholder.stands_in(F.col("after").getField(field.name), field) for field in row}
    return {name: F.when(may_be, stands) for name, stands in conditions.items() if stands is not None}


def _names(is_unavailable: Mapping[str, Column]) -> Column:
    names = [F.when(is_so, F.lit(name)) for name, is_so in is_unavailable.items()]
    if not names:
        return F.lit(None).cast("array<string>")
    # Removes the nulls. `array_compact` would need a lambda, which Spark does not compile.
    lacking_names = F.array_except(F.array(*names), F.array(F.lit(None).cast("string")))
    return F.when(F.coalesce(*names).isNotNull(), lacking_names)


def _image(row: Row, name: str, is_unavailable: Mapping[str, Column]) -> Column:
    image, text, connector = F.col(name), F.col("text"), F.col("source.connector")
    columns = []
    for field in row:
        value = image.getField(field.name)
        if field.kind in AS_TEXT:
            token = F.col("tokens").getField(field.name)
            exact = F.from_json(text, _envelope(ddl((field,)), None))
            exact = F.coalesce(exact["payload"][name], exact[name]).getField(field.name)
            value = typed(Parsed(value, field, token, exact, text, connector))
        elif field.kind == "string":
            exact = F.from_json(with_marks(text), _envelope(ddl((field,)), None))
            exact = F.coalesce(exact["payload"][name], exact[name]).getField(field.name)
            as_written = F.when(has_numbers(text), without_marks(exact)).otherwise(value)
            written = F.when(is_number(value), as_written).otherwise(value)
            is_escaped = value.contains("\\,") & connector.isin("mysql", "mariadb")
            value = F.when(is_escaped, unescaped(written, text, field.name)).otherwise(written)
        if field.name in is_unavailable:
            value = F.when(~F.coalesce(is_unavailable[field.name], F.lit(False)), value)
        columns.append(value.alias(field.name))
    return F.when(image.isNotNull(), F.struct(*columns))


def _key_alone(row: Row, keys: Sequence[str]) -> Column:
    image = F.col("was")
    values = {field.name: image.getField(field.name) for field in row}
    columns = [(value if name in keys else F.when(F.lit(False), value)).alias(name) for name, value in values.items()]
    return F.when(image.isNotNull(), F.struct(*columns))
