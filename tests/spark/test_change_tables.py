"""A table that `apply` keeps equals its database over repeats, gaps, mixed offsets and values that a change lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyrmq_spark import cdc
from pyrmq_spark.cdc.truncations import effect_of
from pyrmq_spark.spark_errors import RocketMQSparkError
from tests.support.source_table import canal_message

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

COLUMNS = "topic string, brokerName string, queueId int, queueOffset bigint, body binary"
UNCHANGED = "__debezium_unavailable_value"


def batch(spark: SparkSession, first: int, *bodies: str, queue: int = 0) -> DataFrame:
    rows = [("t", "b", queue, first + number, body.encode()) for number, body in enumerate(bodies)]
    return spark.createDataFrame(rows, COLUMNS).coalesce(1)  # Spark shuffles nothing of one partition


def envelope(
    op: str, read: int, key: int, city: str | None, life: str | None, before: dict[str, object] | None = None
) -> str:
    row = {"id": key, "city": city, "life": life}
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "lsn": read, "snapshot": None}
    images = {"before": row if op == "d" else before, "after": None if op == "d" else row}
    return json.dumps(images | {"op": op, "source": source, "ts_ns": read}, separators=(",", ":"))


class TestOfDebezium:
    def keep(self, frame: DataFrame, folder: Path, table: str = "public.t", **options: object) -> dict[object, int]:
        columns = "id bigint, city string, life string"
        return cdc.apply(frame, folder, tool="debezium", schema=columns, key="id", table=table, **options)  # type: ignore[arg-type,return-value]

    def rows(self, spark: SparkSession, folder: Path) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in cdc.table(spark, folder).collect())

    def test_the_latest_change_counts_in_each_order_and_again(self, spark: SparkSession, tmp_path: Path) -> None:
        first = batch(
            spark,
            0,
            envelope("r", 1, 1, "Bern", "long"),
            envelope("u", 3, 1, "Basel", UNCHANGED),
            envelope("u", 2, 1, "Chur", UNCHANGED),
        )
        for _ in range(2):
            assert self.keep(first, tmp_path) == {("t", "b", 0): 3}
            assert self.rows(spark, tmp_path) == [(1, "Basel", "long")]
        more = (envelope("u", 5, 1, "Zug", UNCHANGED), envelope("c", 6, 2, None, None), envelope("d", 8, 2, None, None))
        self.keep(batch(spark, 3, *more), tmp_path)
        self.keep(batch(spark, 6, envelope("u", 7, 2, "late", "x"), envelope("u", 4, 1, "late", "x")), tmp_path)
        assert self.rows(spark, tmp_path) == [(1, "Zug", "long")]
        (end,) = cdc.applied(spark, tmp_path).collect()
        assert tuple(end) == ("t", "b", 0, 8)
        with pytest.raises(RocketMQSparkError, match=r"RMQ_MISSING_CHANGES.*t/b/0 up to 8.*9 to 9"):
            self.keep(batch(spark, 9, envelope("c", 9, 3, "x", "y")), tmp_path)
        with pytest.raises(PySparkException, match=r"RMQ_LACKING_COLUMN.*begin with a snapshot. \{\"id\":3\}"):
            self.keep(batch(spark, 8, envelope("u", 9, 3, "x", UNCHANGED)), tmp_path)
        with pytest.raises(
            PySparkException, match=r"RMQ_UNORDERED_CHANGES.*\{\"id\":1\} has changes in several queues"
        ):
            self.keep(batch(spark, 0, envelope("u", 9, 1, "x", "y"), queue=1), tmp_path)
        assert self.rows(spark, tmp_path) == [(1, "Zug", "long")]

    def test_it_looks_first(self, spark: SparkSession, tmp_path: Path) -> None:
        frame = batch(spark, 0, envelope("c", 1, 1, "x", "y").replace('"snapshot":null', '"snapshot":"false"'))
        with pytest.raises(RocketMQSparkError, match=r"RMQ_UNFIT_CAPTURE.*replace.null.with.default.*t/b/0/0"):
            self.keep(frame, tmp_path)
        with pytest.raises(RocketMQSparkError, match=r"RMQ_UNFIT_CAPTURE.*there are changes of: shop.public.t"):
            self.keep(frame, tmp_path, "public.other", accept=["converter.replace.null.with.default"])
        self.keep(frame, tmp_path, accept=["converter.replace.null.with.default"])
        assert self.rows(spark, tmp_path) == [(1, "x", "y")]


def test_truncations_and_other_statements_of_canal(spark: SparkSession, tmp_path: Path) -> None:
    def keep(frame: DataFrame, **options: object) -> list[int]:
        columns = "id bigint, name string"
        cdc.apply(frame, tmp_path, tool="canal", schema=columns, key="id", table="shop.customers", **options)  # type: ignore[arg-type]
        return sorted(row.id for row in cdc.table(spark, tmp_path).collect())

    def inserted(*keys: int) -> str:
        return canal_message([("c", None, {"id": key, "name": "x"}) for key in keys])

    def statement(sql: str) -> str:
        return json.dumps(
            {"isDdl": True, "type": "QUERY", "database": "shop", "table": "customers", "sql": sql, "es": 9}
        )

    assert keep(batch(spark, 0, inserted(1, 2))) == [1, 2]
    assert keep(batch(spark, 1, inserted(3), statement("/* by x */ TRUNCATE customers"), inserted(4))) == [4]
    with pytest.raises(RocketMQSparkError, match=r"RMQ_UNFIT_CAPTURE.*t/b/0/4 .*DROP TABLE"):
        keep(batch(spark, 4, statement("DROP TABLE `customers`")))
    assert keep(batch(spark, 4, statement("DROP INDEX i ON customers"), inserted(5))) == [4, 5]
    assert keep(batch(spark, 6, statement("DROP TABLE `customers`")), accept=["statements"]) == [4, 5]
    with pytest.raises(RocketMQSparkError, match=r"RMQ_UNORDERED_CHANGES.*the truncation at t/b/1/0"):
        keep(batch(spark, 0, statement("truncate table customers"), queue=1))


@pytest.mark.parametrize(
    ("effect", "kind", "sql"),
    [
        ("none", "DINDEX", "DROP INDEX i ON customers"),
        ("none", "ALTER", "ALTER TABLE customers ADD COLUMN c int COMMENT 'rename'"),
        ("none", "ALTER", "ALTER TABLE `change` ADD COLUMN c int -- then rename it"),
        ("none", "ALTER", "ALTER TABLE customers RENAME INDEX i TO j, ADD CHECK ((c) > 1 OR modify)"),
        ("none", "ALTER", "ALTER TABLE customers ADD  PARTITION (PARTITION p VALUES LESS THAN (9))"),
        ("none", "CREATE", "/* x */ CREATE TABLE customers (id bigint)"),
        ("truncated", "QUERY", "/* ApplicationName=DBeaver */ TRUNCATE TABLE customers"),
        ("truncated", "QUERY", "-- x\n# y\ntruncate customers"),
        ("truncated", "TRUNCATE", ""),
        ("unknown", "QUERY", "/* x */ DROP TABLE customers"),
        ("unknown", "ALTER", "-- x\nALTER TABLE customers MODIFY c int"),
        ("unknown", "ALTER", "ALTER TABLE customers /*!50100 DROP PARTITION p */"),
        ("unknown", "CINDEX", "ALTER TABLE customers ADD INDEX (a), COMMENT 'it''s \\' it', RENAME old"),
        ("unknown", "CREATE", "CREATE OR REPLACE TABLE customers (id bigint)"),
        ("unknown", "RENAME", ""),
        ("unknown", "QUERY", "VANISH customers"),
    ],
)
def test_a_statement_is_read_without_comments_and_quoted_texts(effect: str, kind: str, sql: str) -> None:
    assert effect_of(sql, kind) == effect


@pytest.mark.parametrize("text", ["(" * 100_000 + ")" * 100_000, "'" + "\\'" * 100_000, "/* " * 100_000, "(" * 100_000])
def test_a_statement_of_any_length_is_read_once(text: str) -> None:
    """Each of these took hours, by a search from each of its characters to its end."""
    assert effect_of(f"DROP TABLE customers {text}", "ERASE") == "unknown"
    assert effect_of("ALTER TABLE customers ADD c int) RENAME (x", "ALTER") == "unknown"
