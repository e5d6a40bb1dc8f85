"""A stream of two topics into parquet files, in a process of its own that may be killed at any moment.

python -m tests.spark.killed_job NAMESERVER TOPICS DIRECTORY

It reads until there is a file DIRECTORY/finish; then it reads what there is, and writes all rows that arrived to
DIRECTORY/found. A query that fails because its Pythons were killed is started again; what the source refuses ends it.
"""

import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = "topic string, brokerName string, queueId int, queueOffset bigint, body string"
# A killed broker is back within seconds; a busy machine may need longer.
PATIENCE_MS = 120_000
POLL_SECONDS = 1


def session() -> SparkSession:
    """Returns a session that starts fast, as its start is most of its life.

    The second compiler and a collector with threads never pay.
    """
    builder = SparkSession.builder.master("local[2]").appName("pyrmq killed")
    for name, value in {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
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


def started(spark: SparkSession, nameserver: str, topics: str, directory: Path, **trigger: Any) -> StreamingQuery:
    source = spark.readStream.format("rocketmq").schema(COLUMNS)
    options = {"nameServer": nameserver, "topic": topics, "startingOffsets": "earliest"}
    limits = {"maxOffsetsPerTrigger": 1000, "pollNameServerIntervalMs": 1000, "pullTimeoutMs": PATIENCE_MS}
    writer = source.options(**options, **limits).load().writeStream.format("parquet")
    writer = writer.option("path", str(directory / "rows")).option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(**trigger).start()


def read(spark: SparkSession, nameserver: str, topics: str, directory: Path) -> None:
    finish = directory / "finish"
    while True:
        last = finish.exists()
        trigger = {"availableNow": True} if last else {"processingTime": "100 milliseconds"}
        try:
            query = started(spark, nameserver, topics, directory, **trigger)
            while not query.awaitTermination(POLL_SECONDS):
                if finish.exists() and not last:
                    query.stop()
        except StreamingQueryException as error:
            if "[RMQ_" in str(error):
                raise
            print("started again:", str(error)[:300], flush=True)  # noqa: T201
        else:
            if last:
                return


if __name__ == "__main__":
    nameserver, topics, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = session()
    read(spark, nameserver, topics, directory)
    rows = spark.read.schema(COLUMNS).parquet(str(directory / "rows"))
    rows.coalesce(1).write.parquet(str(directory / "found"))
    spark.stop()
