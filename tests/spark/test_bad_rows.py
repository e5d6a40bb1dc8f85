"""Rows that are not valid messages are named by row and column before their batch is sent; null is no fault."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_spark.spark_errors import InvalidRow, RocketMQSparkError
from pyrmq_spark.write.columns import SINK_TYPES, SinkSchema
from pyrmq_spark.write.rows import check_rows
from tests.support.sink import BODY, bodies, cluster, messages, stored, task
from tests.support.spark import wait_readable

__all__ = ["cluster"]

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MIB = 1024 * 1024
TEXT, MAP = pa.string(), pa.map_(pa.string(), pa.string())
# A value of each column that brokers take.
GIVEN: dict[str, tuple[Any, pa.DataType]] = {
    "tags": ("t", TEXT),
    "keys": ("k", TEXT),
    "shardingKey": ("s", TEXT),
    "brokerName": ("broker-a", TEXT),
    "queueId": (0, pa.int32()),
    "properties": ([("p", "v")], MAP),
    "delayLevel": (1, pa.int32()),
    "deliverAt": (NOW, pa.timestamp("us", "UTC")),
    "flag": (7, pa.int32()),
    "priority": (2, pa.int32()),
    "liteTopic": ("session-1", TEXT),
}


def test_null_is_no_value_in_every_column_that_may_lack_one(cluster: EmbeddedCluster) -> None:
    """Row 0 has every value, row 1 none; a level excludes a time of delivery, a priority and a lite topic."""
    columns = {name: pa.array([value, None], kind) for name, (value, kind) in GIVEN.items()}
    columns |= {name: pa.nulls(2, GIVEN[name][1]) for name in ("deliverAt", "priority", "liteTopic")}
    assert {"body", "topic", *columns} == set(SINK_TYPES)
    rows = pa.record_batch({"body": pa.array([b"all", b"none"]), **columns})
    schema = SinkSchema({name: number for number, name in enumerate(rows.schema.names)}, "orders")
    written = task(cluster, schema=schema, messageIds="content").run(iter([rows] * 20))
    assert written.rows == 40
    wait_readable(cluster.nameserver, "orders", 40)  # level 1 is a second
    sink_messages = messages(cluster)
    assert sorted(message.body for message in sink_messages) == [b"all"] * 20 + [b"none"] * 20
    by_body = {message.body: message for message in sink_messages}
    full, bare = by_body[b"all"], by_body[b"none"]
    assert (full.tags, full.keys, full.sharding_key, full.flag) == ("t", "k", "s", 7)
    assert full.properties["p"] == "v"
    assert (bare.tags, bare.flag) == (None, 0)
    assert set(bare.properties) == {"UNIQ_KEY", "WAIT"}


@pytest.mark.parametrize(
    ("column", "value", "kind", "fault"),
    [
        ("body", None, pa.binary(), "it is null; a message has a body"),
        ("body", b"", pa.binary(), "it is empty"),
        ("body", b"x" * (4 * MIB + 1), pa.binary(), "it is larger than 4194304 bytes"),
        ("topic", None, TEXT, "it is null; name the topic"),
        ("topic", "", TEXT, "a topic needs a name"),
        ("topic", "two words", TEXT, "holds characters"),
        ("topic", "t" * 128, TEXT, "127"),
        ("topic", "SCHEDULE_TOPIC_XXXX", TEXT, "SCHEDULE_TOPIC_XXXX"),
        ("tags", "", TEXT, "it is empty"),
        ("tags", "a\x01b", TEXT, r"U\+0001 or U\+0002"),
        ("keys", "a\x02b", TEXT, r"U\+0001 or U\+0002"),
        ("keys", " ", TEXT, "it holds no word"),
        ("keys", ["a", None], pa.list_(TEXT), "null"),
        ("keys", ["a", ""], pa.list_(TEXT), "one of its elements is empty, .*leave it out"),
        ("keys", ["a b"], pa.list_(TEXT), "space"),
        ("shardingKey", "", TEXT, "it is empty"),
        ("properties", [("", "v")], MAP, "one of its names is empty, .*leave it out"),
        ("properties", [("p", "")], MAP, "one of its values is empty, .*leave that name out"),
        ("properties", [("p", None)], MAP, "null"),
        ("properties", [("p\x01", "v")], MAP, r"one of its names holds U\+0001 or U\+0002"),
        ("properties", [("UNIQ_KEY", "v")], MAP, r"UNIQ_KEY, a name RocketMQ keeps for itself; .*select\("),
        ("properties", [("p", "v" * 40_000)], MAP, "the properties take"),
        ("queueId", -1, pa.int32(), "below 0"),
        ("brokerName", "", TEXT, "it is empty"),
        ("delayLevel", 19, pa.int32(), "levels are 1"),
        ("priority", -1, pa.int32(), "it is below 0"),
        ("deliverAt", NOW + timedelta(days=3, seconds=1), pa.timestamp("us", "UTC"), "3 days"),
    ],
)
def test_a_wrong_row_is_named(column: str, value: Any, kind: pa.DataType, fault: str) -> None:
    fine = [b"x" if column == "body" else "orders" if column == "topic" else GIVEN[column][0]] * 4
    if kind == pa.list_(TEXT):
        fine = [["k"]] * 4
    values = pa.array([*fine[:2], value, *fine[3:]], kind)
    given = {"body": pa.array([b"x"] * 4), column: values}
    for name, other in (("queueId", "brokerName"), ("brokerName", "queueId")):
        if column == name:
            given[other] = pa.array([GIVEN[other][0]] * 4, GIVEN[other][1])
    with pytest.raises(InvalidRow, match=rf"^row 1002, column {column}: .*{fault}"):
        check_rows(pa.record_batch(given), 1000, NOW)


def test_the_largest_body_is_taken_and_one_byte_more_fails_before_its_batch_is_sent(cluster: EmbeddedCluster) -> None:
    largest = pa.record_batch({"body": pa.array([b"x" * (4 * MIB)])})
    assert task(cluster).run(iter([largest])).rows == 1
    wait_readable(cluster.nameserver, "orders", 1)
    too_large = pa.record_batch({"body": pa.array([b"sent with it?", b"x" * (4 * MIB + 1)])})
    with pytest.raises(RocketMQSparkError, match=r"partition 0: row 6, column body: it is larger .*\(5 rows of this"):
        task(cluster, schema=BODY).run(iter([bodies(0, 5), too_large]))
    assert not any("sent with it?" in queue_bodies for queue_bodies in stored(cluster).values())
