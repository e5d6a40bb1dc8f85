"""Spark on messages of Go's client, and Go's client on rows of Spark: each column is what Go says of the message."""

from __future__ import annotations

import json
import uuid
from operator import itemgetter
from typing import Any, Final

import pytest
from pyspark.sql import Row, SparkSession

from pyrmq_core.blocking import Admin, EmbeddedCluster
from tests.support.apache import ApacheCluster
from tests.support.go_programs import built, run_go
from tests.support.maven import ApacheUnavailable
from tests.support.spark import read, spark, wait_readable, write

__all__ = ["spark"]

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(600)]

SENT: Final = 12  # by `send` and `later` of the program; one more is rolled back
SCHEMA: Final = """
  body string, tags string, keys string, msgId string, brokerName string, queueId int, queueOffset long,
  allProperties map<string,string>, offsetMsgId string, flag int, storeSize int, sysFlag int, bornTimestamp timestamp,
  storeTimestamp timestamp, bornHost string, storeHost string, bodyCrc int, commitLogOffset long, reconsumeTimes int,
  preparedTransactionOffset long"""
NAMES: Final = (  # of the same columns in Go
    *("body", "tag", "keys", "id", "broker", "queue", "offset", "properties", "broker_id", "flag", "size", "sys_flag"),
    *("born", "stored", "born_host", "store_host", "crc", "log_offset", "times", "prepared"),
)
OF_THE_CLIENT: Final = ("CONSUME_START_TIME", "MAX_OFFSET", "MIN_OFFSET")  # what Go's consumer adds to properties
ROWS: Final = """VALUES
  ('plain', 'paid', 'order-1 shop-2', null, map('region', '中 são'), 7, null),
  (repeat('large ', 2000), null, null, null, null, null, null),
  ('keyed 0', null, null, 'order-1', null, null, null),
  ('keyed 1', null, null, 'order-1', null, null, null),
  ('\\U0001F600', null, 'key', null, null, null, 1)
  AS rows(body, tags, keys, shardingKey, properties, flag, delayLevel)"""


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "5.4.0"])
def test_every_column_is_what_go_says(request: pytest.FixtureRequest, spark: SparkSession, is_ours: bool) -> None:
    try:
        built()
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    if is_ours:
        with EmbeddedCluster(brokers=2) as ours:
            both_ways(ours.nameserver, spark)
    else:
        apache_5: ApacheCluster = request.getfixturevalue("apache_5")
        both_ways(apache_5.nameserver.address, spark)


def both_ways(nameserver: str, spark: SparkSession) -> None:
    topic, of_spark = (f"go_spark_{uuid.uuid4().hex[:8]}" for _ in range(2))
    with Admin(nameserver=nameserver, timeout=20) as admin:
        for name in (topic, of_spark):
            admin.create_topic(name, queues=4)
    for forms in ("send", "later"):
        run_go(forms, nameserver, topic)
    wait_readable(nameserver, topic, SENT)
    compared(spark, nameserver, topic, SENT)
    rows = spark.sql(f"SELECT * FROM {ROWS}")
    write(rows, nameserver, topic=of_spark)
    wait_readable(nameserver, of_spark, rows.count())
    for row, said in zip(rows.sort("body").collect(), compared(spark, nameserver, of_spark, rows.count()), strict=True):
        properties = said["properties"]
        assert (said["body"], said["tag"], said["keys"]) == (row.body, row.tags or "", row.keys or "")
        assert (said["flag"], properties.get("__SHARDINGKEY")) == (row.flag or 0, row.shardingKey)
        assert (row.properties or {}).items() <= properties.items()


def compared(spark: SparkSession, nameserver: str, topic: str, count: int) -> list[dict[str, Any]]:
    """Compares Spark's rows of the topic with what Go's consumer says of its messages, and returns these."""
    messages = sorted(
        map(json.loads, run_go("read", nameserver, topic, str(count)).splitlines()), key=itemgetter("body")
    )
    rows = read(spark, nameserver, SCHEMA, topic=topic).sort("body").collect()
    values = [as_go_says(row) for row in rows]
    assert [row["body"] for row in values] == [message["body"] for message in messages]
    for row, message in zip(values, messages, strict=True):
        for name in OF_THE_CLIENT:
            del message["properties"][name]
        assert {name: row[name] for name in message if row[name] != message[name]} == {}, message
    return messages


def as_go_says(row: Row) -> dict[str, Any]:
    """Returns a row under Go's names, its times in milliseconds."""
    values = dict(zip(NAMES, row, strict=True))
    times = {name: round(values[name].timestamp() * 1000) for name in ("born", "stored")}
    # Go has an empty text where Spark has a null.
    return values | times | {name: values[name] or "" for name in ("tag", "keys")}
