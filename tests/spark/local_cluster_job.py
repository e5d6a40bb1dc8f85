"""A job on `local-cluster`: executors are JVMs of their own, so that everything is really pickled and shipped.

python local_cluster_job.py NAMESERVER TOPIC ROWS        prints what was written and read, as JSON
"""

import json
import sys

from pyspark.sql import SparkSession

from tests.support.spark import read, wait_readable, write

if __name__ == "__main__":
    nameserver, topic, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .appName("pyrmq local cluster")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    write(spark.range(0, rows, 1, 4).selectExpr("cast(id as string) as body"), nameserver, topic=topic)
    wait_readable(nameserver, topic, rows)
    bodies = read(spark, nameserver, "body string", topic=topic, minPartitions=6)
    found = bodies.selectExpr("count(*)", "count(distinct body)", "sum(cast(body as bigint))").collect()[0]
    print(json.dumps({"partitions": bodies.rdd.getNumPartitions(), "found": list(found)}))  # noqa: T201
    spark.stop()
