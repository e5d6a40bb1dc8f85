"""Every example runs and gives the result it states."""

import uuid
from decimal import Decimal
from pathlib import Path

import canal_upsert
import each_batch
import example_session
import joined_topics
import json_bodies
import pytest
import resumed_query
import sql_insert
import sql_view
import time_range
import topics_of_one_frame
import windowed_count
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from tests.support.source_table import SourceTable, canal_messages

pytestmark = pytest.mark.spark


@pytest.fixture
def topic() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


def test_a_view(spark: SparkSession, nameserver: str, topic: str) -> None:
    expected = spark.createDataFrame([("open", 8), ("paid", 4)], "tags string, orders bigint")
    assert_df_equality(sql_view.orders_by_tag(spark, nameserver, topic), expected, ignore_nullable=True)


def test_inserts(spark: SparkSession, nameserver: str, topic: str) -> None:
    rows = [tuple(row) for row in sql_insert.inserted(spark, nameserver, topic).collect()]
    assert rows == [("1", "card", "30.50"), ("2", "cash", "12.00"), *((key, None, "5.00") for key in "345")]


def test_topics_of_one_frame(spark: SparkSession, nameserver: str, topic: str) -> None:
    rows = topics_of_one_frame.orders_by_country(spark, nameserver, topic).collect()
    assert sorted((row.topic, row.order.number, row.order.line.price) for row in rows) == sorted(
        (f"{topic}_{'fr' if number % 2 else 'de'}", number, number * 1.5) for number in range(60)
    )
    for customer in range(7):
        own = [row for row in rows if row.order.customer == f"customer {customer}"]
        for name in (f"{topic}_de", f"{topic}_fr"):
            placed = sorted((row.queueOffset, row.order.number) for row in own if row.topic == name)
            assert [number for _, number in placed] == sorted(number for _, number in placed)
            assert len({row.queueId for row in own if row.topic == name}) == 1


def test_json(spark: SparkSession, nameserver: str, topic: str) -> None:
    expected = spark.createDataFrame([(1, "kettle", 30.5), (2, "lamp", 12.0)], "id int, item string, price double")
    assert_df_equality(json_bodies.parsed(spark, nameserver, topic), expected, ignore_row_order=True)


def test_windows(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    rows = windowed_count.counted(spark, nameserver, topic, str(tmp_path)).collect()
    assert sum(row["count"] for row in rows) == 100


def test_a_join(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    rows = joined_topics.paid_orders(spark, nameserver, f"{topic}_o", f"{topic}_p", str(tmp_path)).collect()
    assert [row.order_id for row in rows] == ["5", "6", "7", "8", "9"]


def test_batches(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    rows = each_batch.copy_batches(spark, nameserver, topic, str(tmp_path)).collect()
    assert sum(row["count"] for row in rows) == 20
    assert len(rows) >= 2


@pytest.mark.usefixtures("interpreted")
def test_a_captured_table(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    source = SourceTable()
    for part in range(2):
        before = len(source.changes())
        source.live(100, seed=part)
        bodies = list(canal_messages(source.changes()[before:], first=before))
        repeated = [body for body in bodies for _ in range(2)]
        rows = spark.createDataFrame([(body, "shop") for body in repeated], "body string, shardingKey string")
        example_session.write(rows.coalesce(1), nameserver, topic)  # as Canal: one writer, in the database's order
        table = canal_upsert.keep_table(spark, nameserver, topic, str(tmp_path)).orderBy("id").collect()
        assert [tuple(row) for row in table] == [
            (key, name, Decimal(str(amount)), note) for key, name, amount, note in source.rows()
        ]


def test_a_resumed_query(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    assert tuple(resumed_query.run_twice(spark, nameserver, topic, str(tmp_path)).collect()[0]) == (80, 80, 79)


def test_a_time_range(spark: SparkSession, nameserver: str, topic: str) -> None:
    rows = time_range.middle_third(spark, nameserver, topic).collect()
    assert sorted(row.number for row in rows) == list(range(10, 20))
