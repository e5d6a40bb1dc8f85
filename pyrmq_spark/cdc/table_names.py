"""The check that a batch has changes of the named table. A misspelled name would otherwise give an empty table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc.changes import is_table
from pyrmq_spark.spark_errors import UnfitCapture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE: Final = "source struct<db: string, `schema`: string, `table`: string>"
MESSAGE: Final = f"database string, `table` string, data array<string>, {SOURCE}, payload struct<{SOURCE}>"
QUERY_ID: Final = "sql.streaming.queryId"  # a local property in the threads of a streaming query


def with_named_table(changes: DataFrame, messages: DataFrame, table: str) -> DataFrame:
    """Returns `changes` with a check: the query fails if `messages` have changes, but none of `table`.

    The check reads messages until it finds one of the table. Streams and batches of `foreachBatch` are not checked,
    since they may have only changes of other tables.
    """
    if not is_all_there_is(changes):
        return changes
    m = F.from_json(F.col("body").cast("string"), MESSAGE)
    names = messages.select(m.alias("m")).select(
        F.coalesce("m.payload.source", "m.source").alias("source"), "m.database", "m.table", "m.data"
    )
    source, is_of_canal = F.col("source"), F.col("data").isNotNull()
    is_own = F.coalesce(is_table(table, source["db"], source["table"], source["schema"]), F.lit(False))
    is_own |= F.coalesce(is_table(table, F.col("database"), F.col("table")), F.lit(False))
    of_canal, of_debezium = F.concat_ws(".", "database", "table"), F.concat_ws(".", "source.*")
    other = names.where(is_of_canal | source["table"].isNotNull()).select(
        F.when(is_of_canal, of_canal).otherwise(of_debezium).alias("other")
    )
    words = f"] no message is of table={table!r}, of which the table would be empty. The first change is of "
    error = F.raise_error(F.concat(F.lit(f"[{UnfitCapture.condition}{words}"), "other"))
    empty = other.limit(1).where(~names.where(is_own).exists()).where(error.isNull())
    nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in changes.schema)
    return changes.union(empty.select(*nothing))


def is_all_there_is(changes: DataFrame) -> bool:
    """Returns whether a frame is a batch outside of any streaming query, so that no further messages follow.

    Returns False also if Spark does not reveal it, as in a declarative pipeline.
    """
    try:
        return not changes.isStreaming and changes.sparkSession.sparkContext.getLocalProperty(QUERY_ID) is None
    except PySparkException:
        return False
