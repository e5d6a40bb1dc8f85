"""A query that is started again goes on where its checkpoint says: every message once, none missed."""

import tempfile
import uuid

from example_session import demonstration, write
from pyspark.sql import DataFrame, SparkSession


def drain(spark: SparkSession, nameserver: str, topic: str, directory: str) -> None:
    """Takes all messages up to now; the second run takes those since the first."""
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=nameserver, topic=topic, startingOffsets="earliest")
        .load()
    )
    query = (
        messages.selectExpr("cast(cast(body as string) as int) as number")
        .writeStream.format("parquet")
        .option("path", f"{directory}/rows")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run_twice(spark: SparkSession, nameserver: str, topic: str, directory: str) -> DataFrame:
    write(spark.range(0, 50).selectExpr("cast(id as string) as body"), nameserver, topic)
    drain(spark, nameserver, topic, directory)
    write(spark.range(50, 80).selectExpr("cast(id as string) as body"), nameserver, topic)
    drain(spark, nameserver, topic, directory)
    rows = spark.read.parquet(f"{directory}/rows")
    return rows.selectExpr("count(*) as rows", "count(distinct number) as distinct", "max(number) as last")


if __name__ == "__main__":
    with demonstration() as (spark, nameserver), tempfile.TemporaryDirectory() as directory:
        run_twice(spark, nameserver, f"events_{uuid.uuid4().hex[:8]}", directory).show()
