"""Jobs on a batch topic, for every cluster that has such topics; subclasses supply the NameServer fixture."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from pyrmq_core.blocking import Admin
from tests.support.spark import read, wait_readable, write
from tests.support.spark_batches import some_rows, topic
from tests.support.spark_streams import batches, bodies, run, stream

__all__ = ["topic"]

ROWS = 2000


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Returns every row, sorted, without what differs between topics: position, times and unique id."""

    def plain(row: Row) -> tuple[Any, ...]:
        own = {name: value for name, value in row.properties.items() if name not in ("UNIQ_KEY", "CLUSTER")}
        return bytes(row.body), row.tags or "", row.keys or "", sorted(own.items()), row.reconsumeTimes

    return sorted(map(plain, frame.collect()))


class BatchTopicJobs:
    """Each test writes to a topic of its own."""

    def test_its_rows_are_those_of_a_plain_topic(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        """However ranges are cut, and whatever is filtered: row by row, and each once."""
        frame, plain = some_rows(spark, ROWS, 2), f"{topic}_plain"
        batch = {"topic": topic, "createTopic": "batch", "topicQueueNums": 2, "compression": "zlib"}
        write(frame, nameserver, **batch, compressBodyOverBytes=0, maxBatchBytes=15_000)
        write(frame, nameserver, topic=plain, createTopic="normal", topicQueueNums=2)
        for name in (topic, plain):
            wait_readable(nameserver, name, ROWS)
        with Admin(nameserver=nameserver, timeout=20) as admin:
            kinds = {config.attributes.get("queue.type") for config in admin.topic_config(topic).values()}
        assert kinds == {"BatchCQ"}
        every = rows_of(read(spark, nameserver, topic=plain))
        for options, passes in (
            ({"maxRecordsPerPartition": 350, "pullBatchSize": 7}, lambda row: True),
            ({"tags": "tag1 || tag2", "minPartitions": 5}, lambda row: row[1] in ("tag1", "tag2")),
            (
                {"sql": "number > 1700 AND TAGS = 'tag1'", "startingTimestamp": 0},
                lambda row: int(row[0][4:]) > 1700 and row[1] == "tag1",
            ),
        ):
            rows = rows_of(read(spark, nameserver, None, **{"topic": topic} | options))
            assert rows == [row for row in every if passes(row)], options
            assert rows
        whole = read(spark, nameserver, "msgId string, sysFlag int", topic=topic).collect()
        assert len({row.msgId for row in whole}) == ROWS
        assert {row.sysFlag & 0xC1 for row in whole} == {0xC0}  # whole batches, and nothing compressed

    def test_a_stream_is_capped_inside_batches(
        self, spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
    ) -> None:
        """Each batch of the stream ends where the cap says, and the next one begins there."""
        frame = spark.range(0, 2000, 1, 1).selectExpr("cast(id as string) as body", "concat('t', id % 2) as tags")
        write(frame, nameserver, topic=topic, createTopic="batch", topicQueueNums=1)
        wait_readable(nameserver, topic, 2000)
        frame = stream(spark, nameserver, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=700)
        assert batches(run(frame, tmp_path)) == [700, 700, 600]
        assert bodies(spark, tmp_path) == list(range(2000))

    def test_delayed_rows_are_delivered_there(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        frame = spark.range(0, 40, 1, 1).selectExpr(
            "cast(id as string) as body", "if(id % 4 = 0, 1, null) as delayLevel", "concat('t', id % 2) as tags"
        )
        write(frame, nameserver, topic=topic, createTopic="batch", topicQueueNums=1)
        wait_readable(nameserver, topic, 40)
        rows = read(spark, nameserver, "body string", topic=topic).collect()
        assert sorted(int(row.body) for row in rows) == list(range(40))
