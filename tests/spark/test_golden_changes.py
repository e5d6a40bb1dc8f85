"""Golden messages of Debezium and Canal in Spark: the table is that of the database, and a planted fault shows.

`tests/interop/changes/test_captures.py` looks at the files themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc import canal_rows, columns, debezium, debezium_rows, debezium_values, order, upsert
from tests.interop.changes.captures import Capture, read_capture
from tests.interop.changes.judge import Verdict, faults, judge
from tests.interop.changes.record import GOLDEN
from tests.interop.changes.ways import arguments_of, by_batch, by_batches
from tests.interop.changes.work import Table
from tests.support.spark import spark

__all__ = ["spark"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PLACEHOLDER: Final = debezium_values.Placeholder
POSTGRESQL_4: Final = "debezium_postgresql_4"
FILES: Final = sorted(GOLDEN.glob("*.jsonl"))
# One of each tool, and of each database; a stream judges one of Debezium over MariaDB. All of the others take minutes.
ALWAYS: Final = ("canal_mariadb_5", "debezium_postgresql_6")
MIN_CHANGES: Final = 5  # of rows that were there


def verdicts(spark: SparkSession, capture: Capture, folder: Path) -> list[Verdict]:
    """Judges each table by one batch; MariaDB's first by two, of which one may come twice."""
    random = Random(1)

    def seen(name: str) -> DataFrame:
        table = next(table for table in capture.tables if table.full_name == name)
        messages = capture.frame(spark, table)
        if table is capture.tables[0] and capture.origin["database"] == "mariadb":
            return by_batches(messages, table, folder, capture.origin["tool"], random, batches=2)
        return by_batch(messages, table, folder, capture.origin["tool"])

    return [judge(table, capture.rows[table.full_name], partial(seen, table.full_name)) for table in capture.tables]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.stem in ALWAYS else pytest.mark.soak, id=path.stem) for path in FILES],
)
def test_golden_messages_make_the_tables_of_the_database(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    capture = read_capture(path)
    assert faults(capture.tables, verdicts(spark, capture, tmp_path)) == []


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("stem", "full_name", "is_history"),
    [
        pytest.param("debezium_postgresql_3", "public.deferred", True, marks=pytest.mark.soak),
        # Its connector sent nine changes twice.
        ("debezium_postgresql_6", "public.plain", True),
        # This one did so, too, and took a second snapshot of a log that began anew.
        ("debezium_mariadb_5", "s5.plain", False),
    ],
)
def test_a_stream_has_the_order_of_the_database(
    spark: SparkSession, stem: str, full_name: str, tmp_path: Path, *, is_history: bool
) -> None:
    """So have a pipeline and SCD 2, which go by `sequence`: each change begins with the row that the last one left."""
    capture = read_capture(GOLDEN / f"{stem}.jsonl")
    table = next(table for table in capture.tables if table.full_name == full_name)
    changes = streamed(spark, capture, table, tmp_path)
    latest = changes.groupBy("key").agg(F.max_by(F.struct("op", "after"), "sequence").alias("last"))
    rows = latest.where("last.op <> 'delete'").select("last.after.*")
    assert faults([table], [judge(table, capture.rows[full_name], lambda: rows)]) == []
    if is_history:
        left = F.lag("after").over(Window.partitionBy("key").orderBy("sequence"))
        begins = changes.withColumn("left", left).where("op <> 'insert' AND NOT before <=> left")
        assert begins.count() == 0
        assert changes.where("op <> 'insert'").count() > MIN_CHANGES


def streamed(spark: SparkSession, capture: Capture, table: Table, folder: Path) -> DataFrame:
    """Returns the changes of a table as a stream gives them, without a look at several messages, and each once.

    What was sent again has the same key and `source`.
    """
    messages = capture.frame(spark, table)
    messages.write.parquet(str(folder / "messages"))
    arguments = arguments_of(table, capture.origin["tool"])
    del arguments["tool"], arguments["accept"]
    stream = spark.readStream.schema(messages.schema).parquet(str(folder / "messages"))
    body = F.col("body").cast("string")
    source = F.coalesce(F.get_json_object(body, "$.payload.source"), F.get_json_object(body, "$.source"))
    once = stream.withColumn("source", source).dropDuplicates(["topic", "keys", "source"])
    changes = debezium(once, **arguments, full_images=table.has_full_rows)
    query = changes.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start(str(folder / "changes")).awaitTermination()
    return spark.read.parquet(str(folder / "changes"))


def of_last_dot(table: str, database: Column, name: Column, schema: Column | None = None) -> Column:
    """Divides `table` at its last dot, as if no name had one."""
    owner, _, own = table.rpartition(".")
    return (name == own) & ((database == owner) | (F.lit("") if schema is None else schema == owner))


def by_log(rows: DataFrame) -> DataFrame:
    """Orders the changes of a key by their positions in the database's log."""
    return ordered_by(rows, F.coalesce(F.col("log.pos"), F.lit(0)))


def by_offset(rows: DataFrame) -> DataFrame:
    """Orders the changes of a key as they lie in the queue, where the sink mixed those of a batch."""
    return ordered_by(rows, F.lit(0).cast("bigint"))


def ordered_by(rows: DataFrame, first: Column) -> DataFrame:
    changes = rows.select(*order.QUEUE, *order.HINTS, "change.*", F.xxhash64("change.key").alias("mark"))
    offset, index = F.col("sequence.queueOffset"), F.col("sequence.index")
    position = F.struct(first.alias("read"), offset.alias("queueOffset"), index.cast("bigint").alias("index"))
    return changes.select("*", position.alias("position"))


def as_seconds(parsed: debezium_values.Parsed) -> Column:
    """Takes each number for the seconds of a timestamp."""
    return parsed.value.try_cast("bigint").try_cast("timestamp").try_cast(parsed.field.type)


def as_it_is(text: Column, field: columns.Field, _: object) -> Column:
    """Takes Canal's text for the value, whatever the column's type is in the database."""
    return text.try_cast(field.type)


def no_placeholder(*_: object) -> None:
    """Takes the placeholder of an unchanged long value for the value."""


# What was wrong once: module or class, its name, the planted one, and the capture and the table that show it.
PLANTS: Final[dict[str, tuple[object, str, Callable[..., object], str, str]]] = {
    "names are divided at the last dot": (
        debezium_rows,
        "is_table",
        of_last_dot,
        "debezium_postgresql_4",
        "public.dot.ted",
    ),
    "the log's position orders changes": (upsert, "ordered", by_log, "debezium_mariadb_5", "s5.plain"),
    "the offset orders changes": (upsert, "ordered", by_offset, POSTGRESQL_4, "public.long_values"),
    "a number is a timestamp's seconds": (debezium_rows, "typed", as_seconds, "debezium_postgresql_3", "public.plain"),
    "the placeholder is a value": (
        debezium_values.Placeholder,
        "stands_in",
        no_placeholder,
        "debezium_postgresql_4",
        "public.long_values",
    ),
    "Canal's texts are values": (canal_rows, "_typed", as_it_is, "canal_mariadb_5", "c5.plain"),
}
# One of the order of changes and one of their values.
ALWAYS_PLANTED: Final = ("the log's position orders changes", "Canal's texts are values")


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "plant", [pytest.param(plant, marks=() if plant in ALWAYS_PLANTED else pytest.mark.soak) for plant in PLANTS]
)
def test_a_planted_fault_is_found(
    spark: SparkSession, plant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, planted, stem, full_name = PLANTS[plant]
    monkeypatch.setattr(owner, name, planted)
    capture = read_capture(GOLDEN / f"{stem}.jsonl")
    table = next(table for table in capture.tables if table.full_name == full_name)
    verdict = judge(
        table,
        capture.rows[full_name],
        lambda: by_batch(capture.frame(spark, table), table, tmp_path, capture.origin["tool"]),
    )
    assert faults([table], [verdict]) != []
