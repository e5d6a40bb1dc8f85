"""The table in Spark beside the table in the database, row by row."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pyrmq_spark.spark_errors import RocketMQSparkError
from tests.interop.changes.work import Table

NAMED: Final = "RMQ_"
SHOWN: Final = 5

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a table: its `differences` (none if it is right), or the error that ended the query."""

    table: str
    differences: tuple[str, ...] = ()
    refusal: str = ""

    def __str__(self) -> str:
        return f"{self.table}: {self.refusal or '; '.join(self.differences) or 'right'}"


def columns_of(table: Table) -> str:
    """Returns the DDL of the table for `canal` and `debezium`."""
    keys = ["id bigint", *(["part string"] if table.variant == "parts" else [])]
    return ", ".join([*keys, *(f"`{name}` {kind.spark}" for name, kind in table.columns.items())])


def judge(table: Table, truth: Iterable[str], seen: Callable[[], DataFrame]) -> Verdict:
    """Compares the rows that a query gives with those of `Work.rows`; an error without a name is a difference."""
    try:
        rows = rows_of(table, seen())
    except (PySparkException, RocketMQSparkError) as error:
        text = str(error)
        if NAMED not in text:
            return Verdict(table.full_name, (f"ended without a name: {text[:500]}",))
        return Verdict(table.full_name, refusal=text[text.index(NAMED) :].splitlines()[0][:300])
    return Verdict(table.full_name, tuple(differences(table, [json.loads(line) for line in truth], rows)))


def faults(tables: Iterable[Table], results: Iterable[Verdict]) -> list[str]:
    """Returns what may not be: a difference, or an error where nothing was done that the page answers with one."""
    refusable = {table.full_name for table in tables if table.refusals}
    return [
        str(verdict)
        for verdict in results
        if verdict.differences or (verdict.refusal and verdict.table not in refusable)
    ]


def rows_of(table: Table, frame: DataFrame) -> list[list[str | None]]:
    """Returns the rows of a frame as texts, by the SQL of each column's `view`."""
    views = [f"cast({key} as string)" for key in table.keys]
    views += [kind.view.format(f"`{name}`") for name, kind in table.columns.items()]
    return [list(row) for row in frame.selectExpr(*views).collect()]


def differences(table: Table, truth: list[list[str | None]], seen: list[list[str | None]]) -> Iterable[str]:
    """Yields a line for each of the first differences: rows that are too few or too many, and values."""
    width = len(table.keys)
    wanted, got = ({tuple(row[:width]): row for row in rows} for rows in (truth, seen))
    lines = [f"{len(seen) - len(got)} keys are there twice"] if len(seen) != len(got) else []
    lines += [f"row {key} is missing" for key in wanted.keys() - got.keys()]
    lines += [f"row {key} is too many" for key in got.keys() - wanted.keys()]
    kinds = list(table.columns.items())
    for key in wanted.keys() & got.keys():
        for (name, kind), want, have in zip(kinds, wanted[key][width:], got[key][width:], strict=True):
            if want is not None and have is not None and kind.same(want) == kind.same(have):
                continue
            if want != have:
                lines.append(f"row {key}: {name} is {_short(have)}, the database has {_short(want)}")
    return sorted(lines)[:SHOWN]


def _short(text: str | None) -> str:
    return repr(text if text is None or len(text) < 80 else f"{text[:60]}... of {len(text)}")
