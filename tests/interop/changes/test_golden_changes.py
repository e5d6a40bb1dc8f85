"""Golden messages of Debezium in Spark: the table is that of the database.

`test_captures.py` looks at the files themselves.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.interop.changes.captures import Capture, read_capture
from tests.interop.changes.judge import Verdict, faults, judge
from tests.interop.changes.record import GOLDEN
from tests.interop.changes.ways import by_batch, by_batches
from tests.support.spark import spark

__all__ = ["spark"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FILES: Final = sorted(GOLDEN.glob("*.jsonl"))


def verdicts(spark: SparkSession, capture: Capture, folder: Path) -> list[Verdict]:
    """Judges each table by one batch; MariaDB's first by two, of which one may come twice."""
    random = Random(1)

    def seen(name: str) -> DataFrame:
        table = next(table for table in capture.tables if table.full_name == name)
        messages = capture.frame(spark, table)
        if table is capture.tables[0] and capture.origin["database"] == "mariadb":
            return by_batches(messages, table, folder, "debezium", random, batches=2)
        return by_batch(messages, table, folder, "debezium")

    return [judge(table, capture.rows[table.full_name], partial(seen, table.full_name)) for table in capture.tables]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_messages_make_the_tables_of_the_database(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    capture = read_capture(path)
    assert faults(capture.tables, verdicts(spark, capture, tmp_path)) == []
