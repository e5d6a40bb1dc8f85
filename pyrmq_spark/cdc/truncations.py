"""The statements (DDL) that change a table without a message for each row, such as truncations, in `apply`."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc.changes import PLACE, is_table
from pyrmq_spark.spark_errors import UnfitCapture, UnorderedChanges, as_spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE: Final = "struct<db: string, `schema`: string, `table`: string>"
MESSAGE: Final = (
    "isDdl boolean, sql string, database string, `table` string, "
    f"op string, source {SOURCE}, payload struct<op: string, source: {SOURCE}>"
)
TRUNCATION: Final = re.compile(r"\s*TRUNCATE\b(?!.*\bPARTITION\b)", re.IGNORECASE | re.DOTALL)
# Statements after which the table may have other rows than the messages say.
OTHERS: Final = re.compile(
    r"\s*(?:DROP\b|RENAME\b|TRUNCATE\b|ALTER\b.*\b(?:RENAME|MODIFY|CHANGE|CONVERT|PARTITION)\b)",
    re.IGNORECASE | re.DOTALL,
)


def truncated_at(messages: DataFrame, table: str, queues: Collection[object], accept: Collection[str]) -> int | None:
    """Returns the offset of the last truncation of a table in a batch of messages, or None if there is none.

    `queues` are the topic's queues that had messages so far. With several queues a truncation raises an error, since
    its place among their changes is unknown. Another statement that changes rows without messages, such as a dropped
    partition, raises an error unless `accept` has `statements`.
    """
    last: int | None = None
    for topic, broker, queue, offset, statement in _statements(messages, table):
        where = f"{topic}/{broker}/{queue}/{offset}"
        with as_spark_error("cdc"):
            if TRUNCATION.match(statement) and len(queues) > 1:
                raise UnorderedChanges(
                    f"the truncation at {where} has no order among the changes in {len(queues)} queues: write the "
                    "table into one queue, or make it anew from a snapshot"
                )
            if not TRUNCATION.match(statement) and OTHERS.match(statement) and "statements" not in accept:
                raise UnfitCapture(
                    f"the statement at {where} changes rows without messages: {statement[:80]!r}. Make the table anew "
                    "from a snapshot, or pass it with accept='statements'"
                )
        if TRUNCATION.match(statement):
            last = max(last or 0, offset)
    return last


def _statements(messages: DataFrame, table: str) -> list[tuple[str, str, int, int, str]]:
    read = messages.select(*PLACE, F.from_json(F.col("body").cast("string"), MESSAGE).alias("m"))
    source, op = F.coalesce("m.payload.source", "m.source"), F.coalesce("m.payload.op", "m.op")
    is_own = F.when(F.col("m.isDdl"), is_table(table, F.col("m.database"), F.col("m.table"))).otherwise(
        is_table(table, source["db"], source["table"], source["schema"])
    )
    statement = F.when(F.col("m.isDdl"), F.col("m.sql")).when(op == "t", "TRUNCATE")
    rows = read.where(is_own & statement.isNotNull()).select(*PLACE, statement.alias("statement"))
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows.collect()]
