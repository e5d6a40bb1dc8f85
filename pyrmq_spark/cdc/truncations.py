"""The statements (DDL) that change a table without a message for each row, such as truncations, in `apply`."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc.changes import PLACE, is_table
from pyrmq_spark.spark_errors import UnfitCapture, UnorderedChanges, as_spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE: Final = "struct<db: string, `schema`: string, `table`: string>"
MESSAGE: Final = (
    "isDdl boolean, type string, sql string, database string, `table` string, "
    f"op string, source {SOURCE}, payload struct<op: string, source: {SOURCE}>"
)
# Quoted names and texts, the marks around statements that only some servers run, and comments.
# What is not closed goes to the end, so that no text is searched twice.
QUOTED: Final = r"`[^`]*(?:`|\Z)|'(?:[^'\\]|\\.)*(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)"
QUOTED_OR_COMMENT: Final = re.compile(
    QUOTED + r"|/\*M?!\d*|/\*.*?(?:\*/|\Z)|\*/|--(?=\s|$)[^\n]*|#[^\n]*",
    re.DOTALL,
)
PARENTHESIS: Final = re.compile(r"([()])")
TRUNCATION: Final = re.compile(r"TRUNCATE\b(?!.*\bPARTITION\b)", re.IGNORECASE)
# Statements after which the table still has the rows that the messages say.
HARMLESS: Final = re.compile(
    r"CREATE\b(?! OR REPLACE TABLE\b)|DROP (?:ONLINE |OFFLINE )?INDEX\b|ALTER\b(?!.*\b(?:RENAME(?! (?:INDEX|KEY)\b)"
    r"|MODIFY|CHANGE|CONVERT|IGNORE|(?<!ADD )PARTITION|(?:DISCARD|IMPORT) TABLESPACE)\b)",
    re.IGNORECASE,
)


def truncated_at(messages: DataFrame, table: str, queues: Collection[object], accept: Collection[str]) -> int | None:
    """Returns the offset of the last truncation of a table in a batch of messages, or None if there is none.

    `queues` are the topic's queues that had messages so far. With several queues a truncation raises an error, since
    its place among their changes is unknown. Another statement that may change rows without messages, such as a dropped
    partition, raises an error unless `accept` has `statements`.
    """
    last: int | None = None
    for topic, broker, queue, offset, kind, statement in _statements(messages, table):
        where, effect = f"{topic}/{broker}/{queue}/{offset}", effect_of(statement, kind)
        with as_spark_error("cdc"):
            if effect == "truncated" and len(queues) > 1:
                raise UnorderedChanges(
                    f"the truncation at {where} has no order among the changes in {len(queues)} queues: write the "
                    "table into one queue, or make it anew from a snapshot"
                )
            if effect == "unknown" and "statements" not in accept:
                raise UnfitCapture(
                    f"the statement at {where} may change rows without messages: {statement[:80]!r}. Make the table "
                    "anew from a snapshot, or pass it with accept='statements'"
                )
        if effect == "truncated":
            last = max(last or 0, offset)
    return last


def effect_of(statement: str, kind: str | None) -> Literal["truncated", "none", "unknown"]:
    """Returns what a statement does to the rows of its table. `kind` is Canal's type of it.

    Canal's type is that of the statement's first part. So it shows that rows are removed, and not that they stay.
    """
    words = QUOTED_OR_COMMENT.sub(lambda part: "x" if part[0][0] in "`'\"" else " ", statement)
    words = " ".join(_without_parentheses(words).split())
    if kind == "TRUNCATE" or TRUNCATION.match(words):
        return "truncated"
    return "none" if kind not in ("ERASE", "RENAME") and HARMLESS.match(words) else "unknown"


def _without_parentheses(words: str) -> str:
    """Returns a text without its parts in parentheses, or the same text if the parentheses do not match."""
    kept, depth = [], 0
    for part in PARENTHESIS.split(words):
        if part in ("(", ")"):
            depth += 1 if part == "(" else -1
        elif depth == 0:
            kept.append(part)
        if depth < 0:
            return words
    return words if depth else " ".join(kept)


def _statements(messages: DataFrame, table: str) -> list[tuple[str, str, int, int, str, str]]:
    read = messages.select(*PLACE, F.from_json(F.col("body").cast("string"), MESSAGE).alias("m"))
    source, op = F.coalesce("m.payload.source", "m.source"), F.coalesce("m.payload.op", "m.op")
    is_own = F.when(F.col("m.isDdl"), is_table(table, F.col("m.database"), F.col("m.table"))).otherwise(
        is_table(table, source["db"], source["table"], source["schema"])
    )
    statement = F.when(F.col("m.isDdl"), F.coalesce("m.sql", F.lit(""))).when(op == "t", "TRUNCATE")
    rows = read.where(is_own & statement.isNotNull()).select(*PLACE, "m.type", statement.alias("statement"))
    return [(row[0], row[1], row[2], row[3], row[4], row[5]) for row in rows.collect()]
