"""`pyrmq_spark.cloudevents` over frames with the source's columns; no RocketMQ is needed."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pyrmq_core import InvalidArgument
from pyrmq_core.cloudevents import CloudEvent, Dialect, event_message
from pyrmq_spark import cloudevents
from tests.support.spark import spark

__all__ = ["spark"]

pytestmark = pytest.mark.spark

DIALECTS: tuple[Dialect, ...] = ("java", "spring", "eventmesh", "structured")
EVENT = CloudEvent(
    "e-1",
    "/shop",
    "order.made",
    time="2026-11-28T10:11:12.123456789+05:30",
    datacontenttype="application/json",
    extensions={"traceid": "t-1"},
    data=b'{"price":12.340}',
)


def test_columns_of_events(spark: SparkSession) -> None:
    messages = [event_message("orders", EVENT, dialect=dialect) for dialect in DIALECTS]
    rows = [(number, bytes(message.body), dict(message.properties)) for number, message in enumerate(messages)]
    rows.append((len(rows), b"no event", {"region": "eu"}))
    frame = spark.createDataFrame(rows, "queueOffset int, body binary, properties map<string, string>")
    *events, other = cloudevents(frame).orderBy("queueOffset").collect()
    for row in events:
        assert (row.id, row.source, row.type, row.time) == (EVENT.id, EVENT.source, EVENT.type, EVENT.time)
        assert (row.subject, row.datacontenttype, row.dataschema) == (None, "application/json", None)
        assert (row.extensions, bytes(row.data)) == ({"traceid": "t-1"}, EVENT.data)
    assert (other.id, other.data, bytes(other.body)) == (None, None, b"no event")
    counts = cloudevents(frame).groupBy("type").agg(F.count("*").alias("n")).collect()
    assert {row.type: row.n for row in counts} == {"order.made": len(DIALECTS), None: 1}
    with pytest.raises(InvalidArgument, match="no column properties"):
        cloudevents(frame.drop("properties"))
    with pytest.raises(InvalidArgument, match="a column id of its own"):
        cloudevents(frame.withColumn("id", F.lit(1)))
