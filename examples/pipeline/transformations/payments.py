"""Keeps the payments of a topic in a table, and sends those in euros to another topic; see `spark-pipeline.yml`."""

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

pipelines.create_sink("euros", "rocketmq", {"topic": "euros"})


@pipelines.table
def payments() -> DataFrame:
    source = spark.readStream.format("rocketmq").schema("body string, tags string, queueOffset bigint")
    return source.options(topic="payments", startingOffsets="earliest").load()


@pipelines.append_flow(target="euros", name="payments_in_euros")
def payments_in_euros() -> DataFrame:
    return spark.readStream.table("payments").where("tags = 'EUR'").select("body", "tags")
