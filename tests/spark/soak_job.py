"""The driver of a soak: two streams over the same files into topics, one with a shuffle, until the files have an end.

python -m tests.spark.soak_job NAMESERVER DIRECTORY        ends when DIRECTORY/complete is there and all is written
"""

import sys
from contextlib import suppress
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS = 1
SHUFFLED = "shuffled"


def session() -> SparkSession:
    """Returns a session in which a task may fail three times before its query does."""
    builder = SparkSession.builder.master("local[2,4]").appName("pyrmq soak")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "512m",
        "spark.sql.streaming.minBatchesToRetain": "10000",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def start(spark: SparkSession, nameserver: str, directory: Path, topic: str) -> StreamingQuery:
    files = spark.readStream.schema("key string, number long").option("maxFilesPerTrigger", 2)
    rows: DataFrame = files.parquet(str(directory / "rows"))
    if topic == SHUFFLED:
        rows = rows.repartition(3, F.col("key"))
    messages = rows.selectExpr("concat(key, ' ', number) as body", "nullif(key, 'none') as shardingKey")
    writer = messages.writeStream.format("rocketmq").option("nameServer", nameserver).option("topic", topic)
    writer = writer.option("maxBatchBytes", 2000).option("requestTimeoutMs", 1000).option("delivery", "committed")
    return writer.option("checkpointLocation", str(directory / topic)).start()


def main(nameserver: str, directory: Path) -> None:
    """Runs both queries to their end; starts a failed one again."""
    spark = session()
    spark.sparkContext.setLogLevel("OFF")
    queries = {topic: start(spark, nameserver, directory, topic) for topic in ("plain", SHUFFLED)}
    while queries:
        complete = (directory / "complete").exists()
        for topic, query in list(queries.items()):
            try:
                query.awaitTermination(LOOK_SECONDS)
                if complete:
                    query.processAllAvailable()
                    query.stop()
                    del queries[topic]
            except StreamingQueryException as error:
                print(f"{topic}: {str(error)[:500]}", flush=True)  # noqa: T201
                with suppress(StreamingQueryException):
                    query.stop()
                queries[topic] = start(spark, nameserver, directory, topic)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
