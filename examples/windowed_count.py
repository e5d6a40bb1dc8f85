"""Messages per second, counted in windows by the time the broker stored them, with a watermark."""

import tempfile
import uuid

from example_session import demonstration, write
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name


def counted(spark: SparkSession, nameserver: str, topic: str, checkpoint: str) -> DataFrame:
    write(spark.range(100).selectExpr("cast(id as string) as body"), nameserver, topic)
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=nameserver, topic=topic, startingOffsets="earliest")
        .load()
    )
    windows = messages.withWatermark("storeTimestamp", "10 seconds").groupBy(F.window("storeTimestamp", "1 second"))
    query = (
        windows.count()
        .writeStream.format("memory")
        .queryName("counted")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.table("counted").orderBy("window")


if __name__ == "__main__":
    with demonstration() as (spark, nameserver), tempfile.TemporaryDirectory() as checkpoint:
        counted(spark, nameserver, f"clicks_{uuid.uuid4().hex[:8]}", checkpoint).show(truncate=False)
