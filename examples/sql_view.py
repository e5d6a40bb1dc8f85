"""A topic as a temporary view of Spark SQL."""

import uuid

from example_session import demonstration, write
from pyspark.sql import DataFrame, SparkSession


def orders_by_tag(spark: SparkSession, nameserver: str, topic: str) -> DataFrame:
    rows = spark.range(12).selectExpr("cast(id as string) as body", "if(id % 3 = 0, 'paid', 'open') as tags")
    write(rows, nameserver, topic)
    spark.sql(
        f"""CREATE OR REPLACE TEMPORARY VIEW orders USING rocketmq
            OPTIONS (nameServer '{nameserver}', topic '{topic}')"""
    )
    return spark.sql("SELECT tags, count(*) AS orders FROM orders GROUP BY tags ORDER BY tags")


if __name__ == "__main__":
    with demonstration() as (spark, nameserver):
        orders_by_tag(spark, nameserver, f"orders_{uuid.uuid4().hex[:8]}").show()
