"""The statements (DDL) in the messages of Canal and Debezium, which may change rows without a message for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def statements(frame: DataFrame) -> DataFrame:
    """Returns the statements (DDL) in Canal's and Debezium's messages, such as truncations.

    The columns are `database`, `table`, `statement`, `time` and the frame's `queueOffset`. A truncation deletes rows
    without a message for each row. Debezium writes truncations only with `skipped.operations=none`.
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
