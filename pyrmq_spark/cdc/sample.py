"""Checks a sample of messages for settings of Canal and Debezium that would make a table differ from its database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc.changes import PLACE, is_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

SOURCE: Final = "connector string, snapshot string, db string, `schema` string, `table` string"
ENVELOPE: Final = f"op string, before string, after string, ts_ns bigint, source struct<{SOURCE}>"
FIELD: Final = "field string, default string"
FIELDS: Final = f"schema struct<fields: array<struct<field: string, fields: array<struct<{FIELD}>>>>>"
FLAT: Final = "type string, isDdl boolean, database string, `table` string,"
ROWS: Final = "data array<map<string, string>>, old array<map<string, string>>"
MESSAGE: Final = f"{FIELDS}, payload struct<{ENVELOPE}>, {ENVELOPE}, {FLAT} {ROWS}"
QUEUE: Final = ("topic", "brokerName", "queueId")


class Finding(NamedTuple):
    """A wrong setting of Canal or Debezium that a sample of messages shows, and the `place` of one of these messages.

    `wrong` is True if the table would differ from the database.
    """

    setting: str
    fault: str
    place: str
    wrong: bool


# By setting: what goes wrong if it is wrong, and whether the table then differs from the database without an error.
FAULTS: Final[Mapping[str, tuple[str, bool]]] = {
    "format": ("bodies are neither flat messages of Canal nor envelopes of Debezium in JSON", True),
    "converter.replace.null.with.default": (
        "null in a column that has a default is written as the default: set it to false in Debezium",
        True,
    ),
    "snapshot.mode": (
        "a snapshot follows streamed changes: rows that were deleted between them stay, so make the table anew from it",
        True,
    ),
    "converter.schemas.enable": (
        "messages have no schema, so dates, timestamps and decimals of bytes have no certain meaning: set it to true",
        False,
    ),
    "REPLICA IDENTITY": (
        "updates have no row before them: unchanged long values are not in the messages. Set REPLICA IDENTITY FULL",
        False,
    ),
    "tombstones.on.delete": ("messages have no value, at which Debezium Server's sink ends: set it to false", False),
    "max.batch.size": (
        "messages have no ts_ns, so changes within a millisecond have no order: set it to 1",
        True,
    ),
    "canal.mq.partitionHash": (
        "a table lies in several queues: name each table alone, without $pk$, or changed keys have no certain order",
        False,
    ),
    "binlog_row_image": ("rows of one table have different columns: set it to FULL, and note ALTER statements", False),
}
NO_SUCH_TABLE: Final = "no change is of the table that was named; there are changes of: "
SEVERAL_TABLES: Final = "the name that was given fits several tables, whose keys would be mixed: "


def check(frame: DataFrame, *, table: str | None = None, limit: int = 1000) -> list[Finding]:
    """Returns the settings of Canal or Debezium that are wrong according to a sample of messages.

    `frame` is a batch of messages with `body`, `topic`, `brokerName`, `queueId` and `queueOffset`, of which `limit` are
    read. With `table`, named as in `canal` and `debezium`, there is also a finding if no change is of this table, or if
    the name fits several tables. If no message of the sample is of this table, all messages are searched for one.

    A setting that makes a tool drop messages, such as those of truncations, cannot be found. The documentation's page
    on change data lists such settings.
    """
    queues = _parsed(frame.limit(limit)).groupBy(*QUEUE).agg(*_aggregates(table)).collect()
    places_by_setting = {name: sorted(row[name] for row in queues if row[name] is not None) for name in _conditions()}
    findings = [
        Finding(name, FAULTS[name][0], places[0], FAULTS[name][1])
        for name, places in places_by_setting.items()
        if places
    ]
    findings += [
        Finding("snapshot.mode", FAULTS["snapshot.mode"][0], _place_of(row), True)
        for row in queues
        if row["first_change"] is not None and (row["last_snapshot"] or 0) > row["first_change"]
    ]
    findings += _of_several_queues(queues)
    names = sorted({name for row in queues for name in row["names"]})
    if table and names and not any(row["has_own"] for row in queues) and _parsed(frame).where(_is_own(table)).isEmpty():
        findings.append(Finding("table", f"{NO_SUCH_TABLE}{', '.join(names)}", _place_of(queues[0]), True))
    own_names = sorted({name for row in queues for name in row["own_names"]})
    if table and len(own_names) > 1:
        fault = f"{SEVERAL_TABLES}{', '.join(own_names)}"
        findings.append(Finding("table", fault, _place_of(queues[0]), True))
    return findings


def _parsed(frame: DataFrame) -> DataFrame:
    read = frame.select(*PLACE, F.col("body").cast("string").alias("body"))
    return read.select(*PLACE, "body", F.from_json("body", MESSAGE).alias("m")).select(*PLACE, *_parts())


def _parts() -> list[Column]:
    part = {name: F.coalesce(f"m.payload.{name}", f"m.{name}") for name in ("op", "before", "after", "ts_ns", "source")}
    rows = F.get(F.filter("m.schema.fields", lambda field: field["field"] == "after"), F.lit(0))["fields"]
    defaults = F.exists(rows, lambda field: field["default"].isNotNull())
    names = F.transform("m.data", lambda texts: F.array_join(F.array_sort(F.map_keys(texts)), ","))
    canal_name = F.concat_ws(".", "m.database", "m.table")
    return [
        *(value.alias(name) for name, value in part.items()),
        F.col("m.schema").isNotNull().alias("has_schema"),
        defaults.alias("has_defaults"),
        F.trim("body").alias("text"),
        F.when(F.col("m.isDdl").isNotNull(), F.col("m.type")).alias("type"),
        F.coalesce("m.isDdl", F.lit(False)).alias("is_statement"),
        F.when(F.col("m.type").isin("INSERT", "UPDATE"), F.get(names, F.lit(0))).alias("columns"),
        F.when(F.col("m.data").isNotNull(), canal_name).alias("canal_name"),
        F.col("m.database").alias("database"),
        F.col("m.table").alias("table"),
    ]


def _conditions() -> dict[str, Column]:
    op, source = F.col("op"), F.col("source")
    is_streamed = op.isin("c", "u", "d")
    is_tombstone = F.coalesce(F.col("text"), F.lit("")).isin("", "null")
    is_other = op.isNull() & F.col("type").isNull() & ~is_tombstone & source.isNull()
    default = is_streamed & (source["snapshot"] == "false")
    default &= ~F.col("has_schema") | F.coalesce("has_defaults", F.lit(False))
    return {
        "format": is_other & ~F.col("text").startswith("{"),
        "converter.replace.null.with.default": default,
        "converter.schemas.enable": op.isin("c", "u", "d", "r") & ~F.col("has_schema"),
        "REPLICA IDENTITY": (op == "u") & (source["connector"] == "postgresql") & F.col("before").isNull(),
        "tombstones.on.delete": is_tombstone,
        "max.batch.size": is_streamed & F.col("ts_ns").isNull(),
    }


def _aggregates(table: str | None) -> list[Column]:
    place = F.concat_ws("/", *(F.col(name).cast("string") for name in PLACE))
    op, source = F.col("op"), F.col("source")
    is_incremental = F.coalesce(source["snapshot"], F.lit("")) == "incremental"
    own_name = F.concat_ws(".", source["db"], source["schema"], source["table"])
    is_own = _is_own(table) if table else F.lit(True)
    name = F.coalesce(F.when(op.isin("c", "u", "d", "r"), own_name), F.col("canal_name"))
    return [
        *(F.min(F.when(condition, place)).alias(setting) for setting, condition in _conditions().items()),
        F.max(F.when((op == "r") & ~is_incremental, F.col("ts_ns"))).alias("last_snapshot"),
        F.min(F.when(op.isin("c", "u", "d"), F.col("ts_ns"))).alias("first_change"),
        F.collect_set(F.col("canal_name")).alias("canal_names"),
        F.collect_set(F.when(F.col("columns").isNotNull(), F.concat_ws(":", "canal_name", "columns"))).alias("columns"),
        F.collect_set(name).alias("names"),
        F.collect_set(F.when(is_own, name)).alias("own_names"),
        F.max(is_own).alias("has_own"),
        F.min(place).alias("first_place"),
    ]


def _is_own(table: str) -> Column:
    source = F.col("source")
    of_debezium = is_table(table, source["db"], source["table"], source["schema"])
    of_canal = is_table(table, F.col("database"), F.col("table"))
    return F.coalesce(of_debezium, F.lit(False)) | F.coalesce(of_canal, F.lit(False))


def _of_several_queues(queues: list[Row]) -> list[Finding]:
    findings = []
    tables = [(name, row) for row in queues for name in row["canal_names"]]
    names = [name for name, _ in tables]
    for name, row in tables:
        if names.count(name) > 1:
            setting = "canal.mq.partitionHash"
            findings.append(Finding(setting, FAULTS[setting][0], _place_of(row), FAULTS[setting][1]))
            break
    columns = {text for row in queues for text in row["columns"]}
    owners = [text.partition(":")[0] for text in columns]
    if len(set(owners)) < len(owners):
        setting = "binlog_row_image"
        findings.append(Finding(setting, FAULTS[setting][0], _place_of(queues[0]), FAULTS[setting][1]))
    return findings


def _place_of(row: Row) -> str:
    return str(row["first_place"])
