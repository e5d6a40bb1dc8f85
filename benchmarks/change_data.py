"""The rate of `canal` and `debezium` beside that of Spark's `from_json` alone, on the same bodies.

    python -m benchmarks change_data

Bodies, without blanks as both tools write them, lie in the memory of one session, and pairs run A B B A. A figure is
the rate of the changes divided by that of `from_json` with the whole schema of the message: 1 is as fast. `rows` are
the changes as a stream has them, `in order` those of a batch, in which Spark brings together the changes of each key.
Each run is of all rows and of a tenth of them, and the difference counts, so that planning and compiling do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from benchmarks.support.pairs import pairs_of
from benchmarks.support.spark_jobs import Seconds, drop, ratio_line, seconds_of, spark_session
from pyrmq_spark.cdc import canal, debezium
from pyrmq_spark.cdc.canal_rows import canal_rows
from pyrmq_spark.cdc.changes import COLUMNS as CHANGE
from pyrmq_spark.cdc.debezium_rows import debezium_rows
from tests.support.source_table import (
    COLUMNS,
    DDL,
    SourceTable,
    canal_message,
    canal_messages,
    debezium_message,
)

TEXTS = ", ".join(f"{name} string" for name in COLUMNS)
FLAT = "database string, `table` string, type string, isDdl boolean, es bigint, "
FLAT += f"data array<struct<{TEXTS}>>, old array<map<string, string>>"
SOURCE = "db string, `table` string, file string, pos bigint, `row` bigint"
READERS: dict[str, dict[str, Callable[..., DataFrame]]] = {
    "rows": {"canal": canal_rows, "debezium": debezium_rows},
    "in order": {"canal": canal, "debezium": debezium},
}
ENVELOPE = f"op string, before struct<{DDL}>, after struct<{DDL}>, source struct<{SOURCE}>"


def main(*, quick: bool) -> None:
    rows, pairs = (100_000, 1) if quick else (400_000, 5)
    source = SourceTable()
    source.live(500, seed=1)
    changes = source.changes()
    single = [canal_message([change], number=number) for number, change in enumerate(changes)]
    plain = [debezium_message(*change, number=number) for number, change in enumerate(changes)]
    wrapped = [debezium_message(*change, number=number, wrapped=True) for number, change in enumerate(changes)]
    cases = (
        ("canal", "a row a message", single, FLAT),
        ("debezium", "", plain, ENVELOPE),
        ("canal", "up to 3 rows a message", list(canal_messages(changes)), FLAT),
        ("debezium", "in payload", wrapped, f"payload struct<{ENVELOPE}>"),
    )
    with spark_session() as spark:
        for tool, form, bodies, schema in cases:
            frames = [messages(spark, bodies, number) for number in (rows // 10, rows)]
            for way, readers in READERS.items():
                what = ", ".join(filter(None, (tool, form, way)))
                print(compared(what, frames, readers[tool], schema, rows, pairs), flush=True)
            for frame in frames:
                frame.unpersist()


def messages(spark: SparkSession, bodies: list[str], rows: int) -> DataFrame:
    """Returns so many messages: the bodies again and again, each time with other keys."""
    bare = [(json.dumps(json.loads(body), separators=(",", ":")),) for body in bodies]
    each = spark.createDataFrame(bare, "body string").coalesce(1)
    times = -(-rows // len(bodies))
    frame = each.crossJoin(spark.range(1, times + 1, 1, 2)).limit(rows).repartition(2)
    for start in ('"id":"', '"id":'):
        frame = frame.withColumn("body", F.regexp_replace("body", f"{start}(?=[0-9])", F.concat(F.lit(start), "id")))
    frame = frame.withColumn("body", F.col("body").cast("binary"))
    columns = ("'binlog' AS topic", "'broker-a' AS brokerName", "0 AS queueId")
    frame = frame.selectExpr(*columns, "monotonically_increasing_id() AS queueOffset", "body").persist()
    frame.count()
    return frame


def compared(
    what: str, frames: Sequence[DataFrame], changes_of: Callable[..., DataFrame], schema: str, rows: int, pairs: int
) -> str:
    """Returns the line of one case: rates of processor time and of the clock, beside those of `from_json`."""
    message = F.from_json(F.col("body").cast("string"), schema).alias("m")
    alone = [frame.select("queueOffset", message) for frame in frames]
    changes = [flat(changes_of(frame, DDL, key="id", table="shop.customers")) for frame in frames]
    for _ in range(4):  # the JVM compiles hot code as it runs, for some millions of rows
        difference(alone)
        difference(changes)
    times = pairs_of(pairs, partial(difference, changes), partial(difference, alone))
    return ratio_line(f"{what}: rate by", times, f"{rows:,} messages")


def flat(changes: DataFrame) -> DataFrame:
    """Returns the columns of changes, also of those that are not looked at for their order."""
    return changes.select(*(f"change.{name}" for name in CHANGE)) if "change" in changes.columns else changes


def difference(frames: Sequence[DataFrame]) -> Seconds:
    """Computes both frames. Returns the seconds that the second took beyond the first."""
    (clock, cpu), (all_clock, all_cpu) = (seconds_of(partial(drop, frame)) for frame in frames)
    return all_clock - clock, all_cpu - cpu
