"""A stream into topics: every row of every batch, the same rows after a failed one, nothing overwritten."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from tests.support.spark import read, wait_readable
from tests.support.spark_batches import topic

__all__ = ["topic"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SECONDS = 280
RED = b"row 300"


def numbered(spark: SparkSession, directory: Path, rows: int) -> DataFrame:
    """Returns a stream over files: each `add` of them is there for the next batch."""
    spark.range(0, rows, 1, 2).write.mode("append").parquet(str(directory))
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(directory))


def start(frame: DataFrame, nameserver: str, checkpoint: Path, **options: str) -> StreamingQuery:
    writer = frame.writeStream.format("rocketmq").option("nameServer", nameserver).options(**options)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def test_every_row_of_every_batch_arrives_once(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    frame = numbered(spark, tmp_path / "rows", 1000).selectExpr("cast(id as string) as body", "'t' as tags")
    query = start(frame, nameserver, tmp_path / "checkpoint", topic=topic)
    assert query.awaitTermination(SECONDS)
    assert [progress.sink.numOutputRows for progress in query.recentProgress if progress.numInputRows] == [500, 500]
    wait_readable(nameserver, topic, 1000)
    rows = read(spark, nameserver, "body string, msgId string", topic=topic).collect()
    assert sorted(int(row.body) for row in rows) == list(range(1000))
    assert len({row.msgId for row in rows}) == 1000


def test_output_mode_complete_is_refused_with_what_to_do(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    counted = numbered(spark, tmp_path / "rows", 10).groupBy().count().selectExpr("cast(count as string) as body")
    writer = counted.writeStream.format("rocketmq").options(nameServer=cluster.nameserver, topic=topic)
    writer = writer.outputMode("complete").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException, match=r"\[RMQ_UNSUPPORTED_MODE\] output mode complete .*append"):
        writer.trigger(availableNow=True).start().awaitTermination(SECONDS)


def test_output_mode_update_is_refused_by_spark(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    rows = numbered(spark, tmp_path / "rows", 10).selectExpr("cast(id as string) as body")
    writer = rows.writeStream.format("rocketmq").options(nameServer=cluster.nameserver, topic=topic)
    writer = writer.outputMode("update").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException, match=r"does not support Update mode"):
        writer.trigger(availableNow=True).start().awaitTermination(SECONDS)


def written_twice(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, directory: Path, *, other_order: bool
) -> None:
    """Writes a batch that fails half way, and comes again: in the same order, or shuffled."""

    async def refuse_some(request: Command, peer: Peer) -> Command | Pass:
        return refusal(ResponseCode.MESSAGE_ILLEGAL, "not now") if RED in bytes(request.body) else PASS

    rule = cluster.control(RequestCode.SEND_BATCH_MESSAGE, refuse_some)
    first = numbered(spark, directory / "rows", 1000).selectExpr("concat('row ', id) as body")
    second = first.repartition(2, "body") if other_order else first
    options = {"topic": topic, "maxBatchBytes": "2000"}
    with pytest.raises(StreamingQueryException, match=r"\[RMQ_SEND_FAILED\] .*not now"):
        start(first, cluster.nameserver, directory / "checkpoint", **options).awaitTermination(SECONDS)
    rule.remove()
    assert start(second, cluster.nameserver, directory / "checkpoint", **options).awaitTermination(SECONDS)
    wait_readable(cluster.nameserver, topic, 1001)


def deduplicated(spark: SparkSession, nameserver: str, topic: str, checkpoint: Path) -> list[str]:
    """Returns the bodies of a stream that drops repeated ids."""
    stream = spark.readStream.format("rocketmq").schema("body string, msgId string, storeTimestamp timestamp")
    rows = stream.options(nameServer=nameserver, topic=topic, startingOffsets="earliest").load()
    once = rows.withWatermark("storeTimestamp", "1 hour").dropDuplicatesWithinWatermark(["msgId"])
    writer = once.writeStream.format("memory").queryName(f"once_{topic}").trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(SECONDS)
    return [row.body for row in spark.table(f"once_{topic}").collect()]


def test_a_batch_that_failed_half_way_comes_again_with_the_same_ids(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    """At least once by rows, and exactly once after dropping the ids that repeat."""
    written_twice(spark, cluster, topic, tmp_path, other_order=False)
    rows = read(spark, cluster.nameserver, "body string, msgId string", topic=topic).collect()
    assert len(rows) > 1000
    assert len({(row.body, row.msgId) for row in rows}) == len({row.msgId for row in rows}) == 1000
    once = deduplicated(spark, cluster.nameserver, topic, tmp_path / "once")
    assert sorted(once) == sorted(f"row {number}" for number in range(1000))


def test_a_batch_that_comes_again_in_another_order_loses_no_row_by_dropping(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    """A shuffle puts rows to other places: they may be there twice, under two ids."""
    written_twice(spark, cluster, topic, tmp_path, other_order=True)
    once = deduplicated(spark, cluster.nameserver, topic, tmp_path / "once")
    assert set(once) == {f"row {number}" for number in range(1000)}
    assert len(once) > 1000
