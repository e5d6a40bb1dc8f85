"""foreachBatch: every micro-batch as a frame of its own, here kept once each by its number."""

import tempfile
import uuid

from example_session import demonstration, write
from pyspark.sql import DataFrame, SparkSession


def copy_batches(spark: SparkSession, nameserver: str, topic: str, directory: str) -> DataFrame:
    write(spark.range(20).selectExpr("cast(id as string) as body"), nameserver, topic)

    def keep(batch: DataFrame, number: int) -> None:
        """Replaces the rows of a batch that failed: run again, it has the same rows and number."""
        batch.selectExpr("cast(body as string) as body").write.mode("overwrite").parquet(
            f"{directory}/rows/batch={number}"
        )

    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=nameserver, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=8)
        .load()
    )
    query = (
        messages.writeStream.foreachBatch(keep)
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(f"{directory}/rows").groupBy("batch").count().orderBy("batch")


if __name__ == "__main__":
    with demonstration() as (spark, nameserver), tempfile.TemporaryDirectory() as directory:
        copy_batches(spark, nameserver, f"events_{uuid.uuid4().hex[:8]}", directory).show()
