"""One frame to several topics: the column `topic` says where, each row goes as JSON, a customer's rows in order."""

import uuid

from example_session import demonstration, wait_readable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name


def orders_by_country(spark: SparkSession, nameserver: str, prefix: str) -> DataFrame:
    orders = spark.range(0, 60).select(
        F.col("id").alias("number"),
        F.element_at(F.array(F.lit("de"), F.lit("fr")), (F.col("id") % 2 + 1).cast("int")).alias("country"),
        F.concat(F.lit("customer "), F.col("id") % 7).alias("customer"),
        F.struct(F.col("id").alias("item"), (F.col("id") * 1.5).alias("price")).alias("line"),
    )
    messages = orders.repartition("customer").sortWithinPartitions("number")  # one task has all of a customer's rows
    messages.select(
        F.concat(F.lit(f"{prefix}_"), F.col("country")).alias("topic"),
        F.to_json(F.struct("*")).alias("body"),
        F.col("customer").alias("shardingKey"),
        F.array(F.col("number").cast("string"), F.col("country")).alias("keys"),
    ).write.format("rocketmq").option("nameServer", nameserver).mode("append").save()
    topics = [f"{prefix}_de", f"{prefix}_fr"]
    for topic in topics:
        wait_readable(nameserver, topic, 30)
    read = spark.read.format("rocketmq").schema("topic string, body string, queueId int, queueOffset long")
    return (
        read.options(nameServer=nameserver, topic=",".join(topics))
        .load()
        .withColumn("order", F.from_json("body", orders.schema))
    )


if __name__ == "__main__":
    with demonstration() as (spark, nameserver):
        rows = orders_by_country(spark, nameserver, f"orders_{uuid.uuid4().hex[:8]}")
        rows.orderBy("topic", "queueId", "queueOffset").select("topic", "queueId", "queueOffset", "order.*").show()
