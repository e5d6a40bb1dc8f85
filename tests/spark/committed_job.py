"""Two streams: topic `numbers` committed into `copies`, and a committed read of `copies` into parquet files.

python -m tests.spark.committed_job NAMESERVER DIRECTORY MASTER SINK

It ends when DIRECTORY/complete is there and all is read. SINK is the format of the write: `rocketmq`, or `planted`.

Speculation is on, where MASTER has executors in processes of their own. A query that fails is started again.
"""

import sys
from contextlib import suppress
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.planted_source import PlantedDataSource

LOOK_SECONDS = 1


def session(directory: Path, master: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("pyrmq committed")
    for name, value in {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.streaming.minBatchesToRetain": "10000",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "8",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "2",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.speculation.task.duration.threshold": "4s",
        "spark.local.dir": str(directory / "local"),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def started(
    spark: SparkSession, nameserver: str, directory: Path, sink: str, topic: str, *, last: bool
) -> StreamingQuery:
    source = spark.readStream.format("rocketmq").schema("body string")
    source = source.options(nameServer=nameserver, topic=topic, startingOffsets="earliest", pullTimeoutMs=60_000)
    source = source.option("minPartitions", 4)
    if topic == "numbers":
        writer = source.load().writeStream.format(sink).options(nameServer=nameserver, topic="copies")
        writer = writer.options(maxBatchBytes=1000, requestTimeoutMs=2000, delivery="committed")
    else:
        writer = source.option("isolation", "committed").load().writeStream.format("parquet")
        writer = writer.option("path", str(directory / "rows"))
    writer = writer.option("checkpointLocation", str(directory / topic))
    return writer.trigger(availableNow=True).start() if last else writer.start()


def run(spark: SparkSession, nameserver: str, directory: Path, sink: str) -> None:
    """Runs both to the end: first the write as far as there are numbers, then the read as far as there are copies."""
    queries: dict[str, StreamingQuery] = {}
    while not (directory / "complete").exists():
        for topic in ("numbers", "copies"):
            try:
                if topic not in queries:
                    queries[topic] = started(spark, nameserver, directory, sink, topic, last=False)
                queries[topic].awaitTermination(LOOK_SECONDS)
            except StreamingQueryException as error:
                print(f"{topic}: {str(error)[:500]}", flush=True)  # noqa: T201
                del queries[topic]
    for topic in ("numbers", "copies"):
        if topic in queries:
            with suppress(StreamingQueryException):
                queries[topic].stop()
        while True:
            try:
                if started(spark, nameserver, directory, sink, topic, last=True).awaitTermination(300):
                    break
            except StreamingQueryException as error:
                print(f"{topic}, at the end: {str(error)[:500]}", flush=True)  # noqa: T201


if __name__ == "__main__":
    nameserver, directory, master, sink = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
    spark = session(directory, master)
    spark.dataSource.register(PlantedDataSource)
    run(spark, nameserver, directory, sink)
    spark.stop()
