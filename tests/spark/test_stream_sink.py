"""A stream into topics: every row of every batch, the same rows after a failed one, nothing overwritten."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.spark import read, wait_readable
from tests.support.spark_batches import topic

__all__ = ["topic"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

SECONDS = 90


def numbered(spark: SparkSession, directory: Path, rows: int) -> DataFrame:
    """A stream over files: each `add` of them is there for the next batch."""
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
