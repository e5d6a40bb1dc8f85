"""A stream of two topics into parquet files, in a process of its own that may be killed at any moment.

python -m tests.spark.killed_job NAMESERVER TOPICS DIRECTORY follow|finish

`follow` reads until it is killed; `finish` reads what there is, then writes all rows that arrived to DIRECTORY/found.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = "topic string, brokerName string, queueId int, queueOffset bigint, body string"
# A broker that was killed is back within seconds; a machine with more to do may need longer.
PATIENCE_MS = 60_000


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("pyrmq killed")
    for name, value in {
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read(spark: SparkSession, nameserver: str, topics: str, directory: Path, mode: str) -> StreamingQuery:
    source = spark.readStream.format("rocketmq").schema(COLUMNS)
    options = {"nameServer": nameserver, "topic": topics, "startingOffsets": "earliest"}
    limits = {"maxOffsetsPerTrigger": 1000, "pollNameServerIntervalMs": 1000, "pullTimeoutMs": PATIENCE_MS}
    frame = source.options(**options, **limits).load()
    writer = frame.writeStream.format("parquet").option("path", str(directory / "rows"))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer = (
        writer.trigger(availableNow=True) if mode == "finish" else writer.trigger(processingTime="100 milliseconds")
    )
    return writer.start()


if __name__ == "__main__":
    nameserver, topics, directory, mode = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    spark = session()
    read(spark, nameserver, topics, directory, mode).awaitTermination()
    rows = spark.read.schema(COLUMNS).parquet(str(directory / "rows"))
    rows.coalesce(1).write.parquet(str(directory / "found"))
    spark.stop()
