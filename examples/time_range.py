"""Messages stored between two instants: from the first, up to and without the second."""

import uuid
from datetime import UTC, datetime

from example_session import demonstration, write
from pyspark.sql import DataFrame, SparkSession


def between(spark: SparkSession, nameserver: str, topic: str, start: str, end: str) -> DataFrame:
    return (
        spark.read.format("rocketmq")
        .options(nameServer=nameserver, topic=topic, startingTimestamp=start, endingTimestamp=end)
        .option("startingOffsetsByTimestampStrategy", "latest")  # queues without a message as young give no rows
        .load()
    )


def middle_third(spark: SparkSession, nameserver: str, topic: str) -> DataFrame:
    instants = []
    for first in (0, 10, 20):
        instants.append(datetime.now(UTC).isoformat(timespec="milliseconds"))
        write(spark.range(first, first + 10).selectExpr("cast(id as string) as body"), nameserver, topic)
    middle = between(spark, nameserver, topic, instants[1], instants[2])
    return middle.selectExpr("cast(cast(body as string) as int) as number")


if __name__ == "__main__":
    with demonstration() as (spark, nameserver):
        middle_third(spark, nameserver, f"events_{uuid.uuid4().hex[:8]}").show()
