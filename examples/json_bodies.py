"""JSON bodies become columns with from_json; a body that is no such JSON gives nulls."""

import uuid

from example_session import demonstration, write
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name


def parsed(spark: SparkSession, nameserver: str, topic: str) -> DataFrame:
    rows = spark.createDataFrame([(1, "kettle", 30.5), (2, "lamp", 12.0)], "id int, item string, price double")
    write(rows.select(F.to_json(F.struct("*")).alias("body")), nameserver, topic)
    messages = spark.read.format("rocketmq").schema("body string").options(nameServer=nameserver, topic=topic).load()
    return messages.select(F.from_json("body", "id int, item string, price double").alias("row")).select("row.*")


if __name__ == "__main__":
    with demonstration() as (spark, nameserver):
        parsed(spark, nameserver, f"json_{uuid.uuid4().hex[:8]}").show()
