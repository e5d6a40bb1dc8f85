"""A batch write, a batch read and a stream where driver and executors share nothing but the network and a directory.

python -m tests.spark.shipped_job MASTER NAMESERVER TOPIC ROWS DIRECTORY     prints what was read, as JSON

MASTER is one of Spark's (`local-cluster[1,2,1024]`, `spark://...`), or `connect`: then a server is started, and this is
only its client.
"""

import importlib
import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from tests.support.spark import read, wait_readable, write

SECONDS = 600  # the end of a query that hangs: on a busy machine a cluster takes minutes
COLUMNS = "brokerName string, queueId int, queueOffset bigint, body string"
FOUND = ("count(*)", "count(distinct body)", "sum(cast(body as bigint))")
PARTITIONS = "count(distinct part)"


def session(master: str) -> SparkSession:
    builder = SparkSession.builder.appName("pyrmq shipped")
    if master == "connect":
        importlib.import_module("pandas")  # the client's; the server gets none

        os.environ["PYTHONPATH"] = os.environ["PYRMQ_SERVER_PATH"]
        return builder.remote("local[2]").getOrCreate()
    builder = builder.master(master)
    for name, value in {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def counted(rows: DataFrame) -> list[int]:
    return list(rows.selectExpr(*FOUND).collect()[0])


def streamed(spark: SparkSession, nameserver: str, topic: str, directory: Path) -> list[int]:
    """Reads over several micro-batches and a restart from the checkpoint; returns the numbers."""
    for _ in range(2):
        frame = spark.readStream.format("rocketmq").schema(COLUMNS).option("nameServer", nameserver)
        frame_options = {"topic": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3000"}
        writer = frame.options(**frame_options).load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(directory / "checkpoint")).option(
            "path", str(directory / "rows")
        )
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS)
    return counted(spark.read.schema(COLUMNS).parquet(str(directory / "rows")))


def decoders(spark: SparkSession) -> list[str]:
    """Returns what the executors' Python says of the decoder that it uses."""

    def named(_: int) -> str:
        from pyrmq_core.columnar.decoding.compiled import decoder

        return decoder().reason

    frame = spark.range(0, 4, 1, 4).select(F.udf(named)("id").alias("reason"))
    return [row.reason for row in frame.distinct().collect()]


if __name__ == "__main__":
    master, nameserver, topic, rows, directory = *sys.argv[1:4], int(sys.argv[4]), Path(sys.argv[5])
    spark = session(master)
    write(spark.range(0, rows, 1, 4).selectExpr("cast(id as string) as body"), nameserver, topic=topic)
    wait_readable(nameserver, topic, rows)
    bodies = read(spark, nameserver, COLUMNS, topic=topic, minPartitions=6)
    placed = bodies.selectExpr("body", "spark_partition_id() as part")
    *batch, parts = placed.selectExpr(*FOUND, PARTITIONS).collect()[0]
    results = {"partitions": parts, "batch": batch, "stream": streamed(spark, nameserver, topic, directory)}
    results["decoders"] = decoders(spark)
    print(json.dumps(results))  # noqa: T201
    spark.stop()
