"""Makes change rows, with an operation and the row before and after, from the parsed messages of Canal or Debezium.

The order of a key's changes is the order in which the tool read them, as in the database. Canal sends changes in that
order, so they are ordered by their offset in the queue. Debezium's sink sends up to `max.batch.size` changes at once,
in any order, so they are ordered by the time at which Debezium read them, and then by offset.

Nothing else shows the order. MySQL's time of a row, which Canal passes on, is the time at which its statement began,
before it waited for locks. The LSNs of transactions that were open at a snapshot are below the snapshot's. The log
files of a promoted replica have other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc.order import HINTS
from pyrmq_spark.spark_errors import InvalidChange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pyrmq_core import RocketMQError

Corrupt: TypeAlias = Literal["fail", "skip"]

CORRUPT: Final = "corrupt"
RECORD: Final = {"columnNameOfCorruptRecord": CORRUPT}
PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
COLUMNS: Final = ("op", "key", "before", "after", "sequence")
# The parts of a message: one change, or the delete and the insert of an update that changes the key.
WHOLE, GONE, COME = 0, 1, 2
DEFAULT_SCHEMAS: Final = ("", "public")  # of PostgreSQL; the user must name any other schema


def changes_of(rows: DataFrame, keys: Sequence[str], corrupt: Corrupt, refusal: Column) -> DataFrame:
    """Returns one row for each change: a struct `change`, its message's queue and offset, and hints about its order.

    `rows` are parsed messages, with their queue and offset, the columns `HINTS` about their order, and these:

        op             insert, update or delete, or `pass` for a message to skip
        before, after  the row before and after the change
        index          the number of the row in its message
        read           the time at which the tool read the change, or 0
        fits           false for a corrupt message
        fault          the text of an error, or null
        unavailable    the names of columns whose values the message lacks, or null

    An update that changes a column of the key (`keys`) becomes a delete and an insert. `refusal` replaces a corrupt
    message's change: it is an error, or null to skip the message. A `fault` ends the query, or with `corrupt="skip"`
    its change is left out.
    """
    before, after, op = F.col("before"), F.col("after"), F.col("op")
    key_before, key_after = _key(before, keys), _key(after, keys)
    lacks_key = ((op != "insert") & before.isNotNull() & _has_null(before, keys)) | (
        (op != "delete") & _has_null(after, keys)
    )
    lacks_key |= (op == "delete") & before.isNull()
    fits = F.col("fits") & op.isNotNull() & ~lacks_key

    is_moved = before.isNotNull() & ~key_before.eqNullSafe(key_after)
    parts = (
        F.when(op == "pass", None)
        .when(F.col("fault").isNotNull(), error_of(corrupt, F.col("fault")))
        .when(~F.coalesce(fits, F.lit(False)), refusal)
        .when((op == "update") & is_moved, F.array(F.lit(GONE), F.lit(COME)))
        .otherwise(F.array(F.lit(WHOLE)))
    )
    # The rows before and after stay columns: Spark would copy them for each element of an exploded array.
    part = F.col("part")
    word = F.when(part == GONE, "delete").when(part == COME, "insert").otherwise(op)
    of_deleted = word == "delete"
    columns = (F.when(of_deleted, before.getField(name)).otherwise(after.getField(name)).alias(name) for name in keys)
    index = (F.col("index") * 2 + F.when(part == COME, 1).otherwise(0)).cast("bigint").alias("index")
    names = F.when(~of_deleted, F.col("unavailable").cast("array<string>"))
    change = {
        "op": word,
        "key": F.struct(*columns),
        "before": F.when(word != "insert", before),
        "after": F.when(~of_deleted, after),
        "sequence": F.struct(F.col("read"), F.col("queueOffset"), index),
        "unavailable": F.coalesce(names, F.array().cast("array<string>")),
        "moved": part == GONE,
    }
    fields = F.struct(*(value.alias(name) for name, value in change.items())).alias("change")
    return rows.select("*", F.explode(parts).alias("part")).select(*PLACE, *HINTS, fields)


def refusal_of(corrupt: Corrupt, fault: str) -> Column:
    """Returns an expression for a corrupt message: an error with its place and `fault`, or null to skip it."""
    return error_of(corrupt, fault_at(InvalidChange, fault))


def error_of(corrupt: Corrupt, text: Column) -> Column:
    return F.lit(None) if corrupt == "skip" else F.raise_error(text)


def fault_at(kind: type[RocketMQError], *words: Column | str) -> Column:
    position = F.concat_ws("/", *(F.col(name).cast("string") for name in PLACE))
    parts = [F.lit(word) if isinstance(word, str) else word for word in words]
    return F.concat(F.lit(f"[{kind.condition}] the message at "), position, F.lit(" "), *parts)


def is_table(table: str, database: Column, name: Column, schema: Column | None = None) -> Column:
    """Returns the condition that a message is about `table`.

    `table` is `name`, `database.name`, `schema.name` or `database.schema.name`. Names may have dots. The result is null
    for a message without a table name, or without the database or schema that `table` names.
    """
    own = F.lit(table)
    if "." not in table:
        return name == own
    is_own = (name == own) | (F.concat(database, F.lit("."), name) == own)
    if schema is None:
        return is_own
    of_schema = F.concat(schema, F.lit("."), name)
    return F.when(F.coalesce(schema, F.lit("")) == "", is_own).otherwise(
        is_own | (of_schema == own) | (F.concat(database, F.lit("."), of_schema) == own)
    )


def is_without_schema(table: str, database: Column, name: Column, schema: Column) -> Column:
    """Returns the condition that a message's table has a schema, other than `public`, that `table` does not name."""
    is_named = F.concat(schema, F.lit("."), name).isin(table) | (
        F.concat(database, F.lit("."), schema, F.lit("."), name) == table
    )
    return ~F.coalesce(schema, F.lit("")).isin(*DEFAULT_SCHEMAS) & ~is_named


def _key(row: Column, keys: Sequence[str]) -> Column:
    return F.struct(*(row.getField(name).alias(name) for name in keys))


def _has_null(row: Column, keys: Sequence[str]) -> Column:
    lacking = row.isNull()
    for name in keys:
        lacking |= row.getField(name).isNull()
    return lacking
