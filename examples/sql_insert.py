"""INSERT INTO a temporary view writes to its topic; the columns it names are those of a message."""

import uuid

from example_session import demonstration, wait_readable
from pyspark.sql import DataFrame, SparkSession


def inserted(spark: SparkSession, nameserver: str, topic: str) -> DataFrame:
    spark.sql(
        f"""CREATE OR REPLACE TEMPORARY VIEW payments (body STRING, tags STRING, keys STRING) USING rocketmq
            OPTIONS (nameServer '{nameserver}', topic '{topic}')"""
    )
    spark.sql("INSERT INTO payments VALUES ('30.50', 'card', '1'), ('12.00', 'cash', '2')")
    spark.sql("INSERT INTO payments (keys, body) SELECT id, '5.00' FROM range(3, 6)")
    wait_readable(nameserver, topic, 5)
    return spark.sql("SELECT keys, tags, body FROM payments ORDER BY keys")


if __name__ == "__main__":
    with demonstration() as (spark, nameserver):
        inserted(spark, nameserver, f"payments_{uuid.uuid4().hex[:8]}").show()
