"""Messages that Canal and Debezium wrote (`golden/changes`), as frames of Spark, and the rows that are read of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from pyrmq_spark.cdc import canal_rows, debezium_rows, order
from pyrmq_spark.cdc.changes import COLUMNS as CHANGE_COLUMNS
from pyrmq_spark.cdc.columns import row_and_keys

GOLDEN = Path(__file__).parents[1] / "golden" / "changes"
CANAL = json.loads((GOLDEN / "canal_1.1.8_mariadb_10.11.json").read_text())
POSTGRES = json.loads((GOLDEN / "debezium_3.6.1_postgresql_15.18.json").read_text())
MARIADB = json.loads((GOLDEN / "debezium_3.2.0_mariadb_10.11.json").read_text())
COLUMNS = "topic string, brokerName string, queueId int, queueOffset bigint, body binary"


def frame_of(spark: SparkSession, rows: Iterable[tuple[object, ...]]) -> DataFrame:
    """Returns messages in one partition, of which Spark shuffles nothing."""
    return spark.createDataFrame(list(rows), COLUMNS).coalesce(1)


def captured(topic: str) -> list[dict[str, Any]]:
    return [message["body"] for message in POSTGRES if message["topic"] == topic]


def frame(spark: SparkSession, *topics: str, reverse: bool = False, **changed: Any) -> DataFrame:
    """Returns the messages of topics of Debezium, with other values of an envelope; `reverse` mixes their offsets."""
    own = [message for message in POSTGRES + MARIADB if message["topic"] in topics]
    places = [(m.get("queueId", 0), m.get("queueOffset", number)) for number, m in enumerate(own)]
    rows = [
        (m["topic"], "broker-a", queue, -offset if reverse else offset, json.dumps(m["body"] | changed).encode())
        for m, (queue, offset) in zip(own, places, strict=True)
    ]
    return frame_of(spark, rows)


def numbered(spark: SparkSession, bodies: Iterable[object]) -> DataFrame:
    """Returns messages of one queue with these bodies, as Debezium writes JSON."""
    texts = [json.dumps(body, separators=(",", ":")).encode() for body in bodies]
    return frame_of(spark, [("t", "b", 0, number, text) for number, text in enumerate(texts)])


def parsed(messages: DataFrame, schema: str, **options: Any) -> DataFrame:
    """Returns changes of Debezium without a look at several messages, which triples the cost of a small query."""
    return debezium_rows.debezium_rows(messages, schema, **{"key": "id"} | options).select("change.*")


def ordered(messages: DataFrame, schema: str, table: str) -> DataFrame:
    """Returns changes of Debezium in the order of the database, without a look for messages of other tables."""
    return order.in_order(
        debezium_rows.debezium_rows(messages, schema, key="id", table=table), CHANGE_COLUMNS, logged=True
    )


def envelopes(messages: DataFrame, schema: str, **options: Any) -> list[Row]:
    """Returns the row and the `fault` of each message of Debezium, in order. A query would end at the first fault."""
    row, keys = row_and_keys(schema, "id")
    rows = debezium_rows.parsed_envelopes(messages, row, keys, **options).select(
        "queueOffset", "after", "fault", "unavailable"
    )
    return sorted(rows.collect(), key=lambda row: int(row.queueOffset))


def rows_of(changes: DataFrame) -> list[tuple[object, ...]]:
    """Returns the table: the latest change of each key counts."""
    last = {row.key: row.after for row in sorted(changes.collect(), key=lambda row: tuple(row.sequence))}
    return sorted(tuple(row) for row in last.values() if row is not None)


def written_by_canal(spark: SparkSession) -> DataFrame:
    return frame_of(
        spark, [("changes", "b", m["queueId"], m["queueOffset"], json.dumps(m["body"]).encode()) for m in CANAL]
    )


def faults_of_canal(messages: DataFrame, schema: str, table: str) -> list[str]:
    """Returns the `fault` of each message of Canal, in order. A query would end at the first one."""
    row, _ = row_and_keys(schema, "id")
    rows = canal_rows.parsed_messages(messages, row, table=table).select("queueOffset", "fault").collect()
    return [row.fault or "" for row in sorted(rows, key=lambda row: int(row.queueOffset))]


def ordered_of_canal(spark: SparkSession, rows: Iterable[tuple[object, ...]], schema: str, table: str) -> DataFrame:
    """Returns changes of Canal in the order of the database, without a look for messages of other tables."""
    changes = canal_rows.canal_rows(frame_of(spark, rows), schema, key="id", table=table)
    return order.in_order(changes, CHANGE_COLUMNS, logged=False)
