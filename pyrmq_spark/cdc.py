"""Change data capture: the messages of Canal and Debezium as rows of changes, by expressions of Spark SQL alone.

A change row has `op` (insert, update or delete), `key`, `before`, `after` and `sequence`, which orders the changes of a
key. A changed key is a delete and an insert. The formats: Canal's FlatMessage.java and MQMessageUtils.java (1.1.8), in
which every value is a text; Debezium's envelope in JSON, with or without `schema` and `payload` around it.

Nothing here analyzes a frame or has the JVM parse a schema: Spark refuses both in the functions of a pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pyrmq_spark.spark_errors import InvalidChange, InvalidOption, as_spark_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["canal", "debezium", "statements"]

Corrupt: TypeAlias = Literal["fail", "skip"]

CORRUPT: Final = "corrupt"
RECORD: Final = {"columnNameOfCorruptRecord": CORRUPT}
PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
BLOB_CHARSET: Final = "ISO-8859-1"  # the charset by which Canal writes the bytes of a BLOB
ANY_TEXT: Final = ("string", "binary")  # types in which each of Canal's texts has a value
# Debezium's operations without rows: a truncation, and a logical message of PostgreSQL.
NO_ROWS: Final = ("t", "m")
BLANKS: Final = " \t\r\n"
# One column of a table's DDL: a name, bare or in backticks, and a type; any further words do not change its values.
COLUMN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*[:\s]\s*(\S.*?)\s*", re.DOTALL)
NO_TYPE: Final = re.compile(r"\s+(?:NOT\s+NULL|COMMENT\s|DEFAULT\s|GENERATED\s).*", re.DOTALL | re.IGNORECASE)
QUOTED_OR_MARK: Final = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[<>(),]")


class Field(NamedTuple):
    """A column of the table: its name, and its type in Spark's SQL."""

    name: str
    type: str


Row: TypeAlias = tuple[Field, ...]


def canal(
    frame: DataFrame, schema: str | StructType, *, key: str | Sequence[str], table: str, corrupt: Corrupt = "fail"
) -> DataFrame:
    """Returns the changes of one table from Canal's flat messages in `body`.

    The frame also needs `topic`, `brokerName`, `queueId` and `queueOffset`, for the errors' texts.

    `schema` are the table's columns, as a struct or as DDL, `key` the columns of its primary key, `table` its name, or
    `database.table`. Messages of other tables, and statements (see `statements`), are skipped. A message is corrupt if
    it is not in Canal's format, has no table or time, or has a value that does not fit the schema. It ends the query
    with an error that names the message, or with `corrupt="skip"` is left out. `sequence` is `(es, queueOffset,
    index)`.
    """
    row, keys = _row_and_keys(schema, key)
    message = F.from_json(F.col("body").cast("string"), _canal_message(row), RECORD).alias("m")
    is_statement = F.coalesce("m.isDdl", F.lit(False))
    is_change = F.col("m.type").isin("INSERT", "UPDATE", "DELETE") & ~is_statement
    is_own = _is_table(table, F.col("m.database"), F.col("m.table"))
    has_rows = F.col("m.data").isNotNull()
    is_complete = F.when(is_change, has_rows & F.col("m.es").isNotNull() & is_own.isNotNull()).otherwise(
        is_statement | ~has_rows
    )
    is_message = F.col("m.corrupt").isNull() & F.col("m.type").isNotNull() & is_complete
    data = F.when(~F.coalesce(is_message, F.lit(False)), _refusal(corrupt, "is no flat message of Canal"))
    rows = frame.select(message, *PLACE).select(
        *PLACE,
        "m.type",
        "m.es",
        F.col("m.old").alias("olds"),
        (F.size("m.data") - F.size("m.old")).alias("lead"),
        F.posexplode(data.when(is_change & is_own, F.col("m.data"))).alias("index", "texts"),
    )
    # The changed columns with their old values. Canal omits the maps of the first rows if they are empty, as when its
    # filter hides the changed columns.
    old = F.get("olds", F.col("index") - F.col("lead"))
    rows = rows.select(*PLACE, "type", "es", "index", "texts", old.alias("old"), _now(row).alias("now"))
    is_update = (F.col("type") == "UPDATE") & F.col("old").isNotNull()
    rows = rows.select("*", F.when(is_update, _row_before(row)).alias("was"))
    is_delete = F.col("type") == "DELETE"
    changes = rows.select(
        *PLACE,
        F.lower("type").alias("op"),
        F.when(is_delete, F.col("now")).otherwise(F.col("was")).alias("before"),
        F.when(~is_delete, F.col("now")).alias("after"),
        _fits(row).alias("fits"),
        F.array("es", "queueOffset", F.col("index").cast("bigint") * 2).alias("position"),
    )
    names = ("es", "queueOffset", "index")
    return _changes(changes, keys, names, _refusal(corrupt, f"has values or keys that do not fit {_text(row)}"))


def debezium(
    frame: DataFrame, schema: str | StructType, *, key: str | Sequence[str], table: str, corrupt: Corrupt = "fail"
) -> DataFrame:
    """Returns the changes of one table from Debezium's envelopes in `body`; arguments and errors are as in `canal`.

    `schema` has the types of the JSON: a DATE is an int of days. Rows of a snapshot are inserts, tombstones are
    skipped. `sequence` is the position in the source, of MySQL (`file`, `pos`, `row`) or PostgreSQL (`lsn` as `pos`),
    then the `queueOffset`, which alone orders the changes of other databases.
    """
    row, keys = _row_and_keys(schema, key)
    text = F.col("body").cast("string")
    message = F.from_json(text, _envelope(row), RECORD)
    # Each part repeats `from_json`: Spark computes equal expressions of a projection once, and writes only the parts to
    # the row. A separate projection of the message would also write the complete message.
    payload = message.getField("payload")

    def part(name: str) -> Column:
        return F.when(payload.isNotNull(), payload.getField(name)).otherwise(message.getField(name))

    op, source, is_corrupt = part("op"), part("source"), message.getField(CORRUPT).isNotNull()
    is_own = _is_table(table, source.getField("db"), source.getField("table"), source.getField("schema"))
    words = F.when(op.isin("c", "r"), "insert").when(op == "u", "update").when(op == "d", "delete")
    has_no_rows = ~is_own | op.isin(*NO_ROWS) | part("ddl").isNotNull()
    # Inside `when`, Spark evaluates this only if the condition is true; common operands of an AND it would evaluate
    # always.
    is_tombstone = F.when(op.isNull(), _is_tombstone(text, is_corrupt))
    is_passed = F.coalesce(has_no_rows, F.lit(False)) | F.coalesce(is_tombstone, text.isNull())
    number = F.coalesce(source.getField("pos"), source.getField("lsn"), F.lit(0))
    number_of_row = F.coalesce(source.getField("row"), F.lit(0))
    changes = frame.select(
        *PLACE,
        F.when(is_passed, "pass").otherwise(words).alias("op"),
        part("before").alias("before"),
        part("after").alias("after"),
        (~is_corrupt & is_own).alias("fits"),
        F.coalesce(source.getField("file"), F.lit("")).alias("file"),
        F.array(number, number_of_row, F.col("queueOffset"), F.lit(0)).alias("position"),
    )
    names = ("file", "pos", "row", "queueOffset", "index")
    refusal = _refusal(corrupt, f"is no envelope of Debezium with a key and rows of {_text(row)}")
    return _changes(changes, keys, names, refusal)


def statements(frame: DataFrame) -> DataFrame:
    """Returns the statements (DDL) in Canal's and Debezium's messages: `database`, `table`, `statement`, `time`.

    Among them are truncations, which delete rows without change rows. The last column is the frame's `queueOffset`.
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
    """Returns the change rows; the columns `names` and then `position` become the struct `sequence`."""
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


def _refusal(corrupt: Corrupt, fault: str) -> Column:
    """Returns an expression that ends the query with an error about the message; null if `corrupt` is to skip it."""
    if corrupt == "skip":
        return F.lit(None)
    position = F.concat_ws("/", *(F.col(name).cast("string") for name in PLACE))
    return F.raise_error(F.concat(F.lit(f"[{InvalidChange.condition}] the message at "), position, F.lit(f" {fault}")))


def _typed(text: Column, field: Field) -> Column:
    """Returns Canal's text of a value cast to the column's type; null if it does not fit."""
    return F.encode(text, BLOB_CHARSET) if field.type.lower() == "binary" else text.try_cast(field.type)


def _now(row: Row) -> Column:
    """Returns the struct of a message's row."""
    texts = F.col("texts")
    return F.when(
        texts.isNotNull(), F.struct(*(_typed(texts.getField(field.name), field).alias(field.name) for field in row))
    )


def _row_before(row: Row) -> Column:
    """Returns the row before an update: the columns of `old`, and the others from `now`."""
    old, now = F.col("old"), F.col("now")
    values = (
        F.when(F.map_contains_key(old, field.name), _typed(F.element_at(old, field.name), field))
        .otherwise(now.getField(field.name))
        .alias(field.name)
        for field in row
    )
    return F.struct(*values)


def _fits(row: Row) -> Column:
    """Returns whether each text of a row can be cast to the type of its column."""
    fits = F.lit(True)
    for field in row:
        if field.type.lower() in ANY_TEXT:
            continue
        old = F.element_at("old", field.name)
        fits &= F.col("texts").getField(field.name).isNull() | F.col("now").getField(field.name).isNotNull()
        fits &= F.col("was").isNull() | old.isNull() | F.col("was").getField(field.name).isNotNull()
    return fits


def _canal_message(row: Row) -> str:
    texts = ", ".join(f"{_quoted(field.name)} string" for field in row)
    strings = f"database string, `table` string, type string, {CORRUPT} string"
    return f"{strings}, isDdl boolean, es bigint, data array<struct<{texts}>>, old array<map<string, string>>"


def _envelope(row: Row) -> str:
    """Returns the DDL of an envelope's fields, also if the envelope is inside `payload`."""
    columns = ", ".join(f"{_quoted(field.name)} {field.type}" for field in row)
    source = "db string, `schema` string, `table` string, file string, pos bigint, `row` bigint, lsn bigint"
    rows = f"before struct<{columns}>, after struct<{columns}>"
    envelope = f"op string, {rows}, source struct<{source}>, ddl string"
    return f"payload struct<{envelope}>, {envelope}, {CORRUPT} string"


def _is_tombstone(text: Column, is_corrupt: Column) -> Column:
    """Returns whether a text is a tombstone: blank, `null`, or an envelope with an empty `payload`."""
    names = F.json_object_keys(text)  # null for anything but an object
    others = F.array_except(names, F.array(F.lit("payload"), F.lit("schema")))
    is_wrapper = F.array_contains(names, "payload") & (F.size(others) == 0)
    is_empty = F.get_json_object(text, "$.payload").isNull() & ~is_corrupt
    return F.btrim(text, F.lit(BLANKS)).isin("", "null") | (is_wrapper & is_empty)


def _is_table(table: str, database: Column, name: Column, schema: Column | None = None) -> Column:
    """Returns whether a message is of the table `name`, `database.name` or, at PostgreSQL, `schema.name`.

    The result is null for a message without a table name, or without the database or schema that `table` names.
    """
    owner, _, own_name = table.rpartition(".")
    is_own = name == own_name
    if not owner:
        return is_own
    is_of_owner = database == owner
    return is_own & (is_of_owner if schema is None else is_of_owner | (F.coalesce(schema, F.lit("")) == owner))


def _row_and_keys(schema: str | StructType, key: str | Sequence[str]) -> tuple[Row, tuple[str, ...]]:
    """Returns the table's columns, all nullable, and the names of its key columns."""
    keys = (key,) if isinstance(key, str) else tuple(key)
    with as_spark_error("cdc"):
        row = tuple(_fields(schema))
        names = [field.name for field in row]
        if not keys or set(keys) - set(names):
            raise InvalidOption(f"key={key!r} has to name columns of the schema: {', '.join(names)}")
    return row, keys


def _fields(schema: str | StructType) -> Iterator[Field]:
    """Yields the columns of a struct or of DDL."""
    if isinstance(schema, StructType):
        yield from (Field(field.name, _type(field.dataType)) for field in schema)
        return
    for part in _parts(schema):
        column = COLUMN.fullmatch(part)
        if column is None:
            raise InvalidOption(f"schema={schema!r} is no list of names and types: {part.strip()!r}")
        quoted, bare, rest = column.groups()
        yield Field(bare or quoted.replace("``", "`"), NO_TYPE.sub("", f"{rest} ").strip())


def _parts(ddl: str) -> Iterator[str]:
    """Yields the text of each column in DDL, split at commas outside of types, names and comments."""
    start = depth = 0
    for mark in QUOTED_OR_MARK.finditer(ddl):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(mark[0], 0)
        if mark[0] == "," and not depth:
            yield ddl[start : mark.start()]
            start = mark.end()
    yield ddl[start:]


def _type(data: DataType) -> str:
    """Returns a type as SQL text, with quoted names in structs, which `simpleString` does not quote."""
    match data:
        case StructType():
            return f"struct<{', '.join(f'{_quoted(field.name)}: {_type(field.dataType)}' for field in data)}>"
        case ArrayType():
            return f"array<{_type(data.elementType)}>"
        case MapType():
            return f"map<{_type(data.keyType)}, {_type(data.valueType)}>"
        case _:
            return data.simpleString()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(row: Row) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in row)
