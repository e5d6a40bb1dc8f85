"""Two topics joined as streams: each payment with its order, when both came within a minute of each other."""

import tempfile
import uuid

from example_session import demonstration, write
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name


def read(spark: SparkSession, nameserver: str, topic: str, names: str) -> DataFrame:
    stream = (
        spark.readStream.format("rocketmq")
        .options(nameServer=nameserver, topic=topic, startingOffsets="earliest")
        .load()
    )
    identity, time = names.split()
    return stream.selectExpr(f"cast(body as string) as {identity}", f"storeTimestamp as {time}").withWatermark(
        time, "1 minute"
    )


def paid_orders(spark: SparkSession, nameserver: str, orders: str, payments: str, directory: str) -> DataFrame:
    write(spark.range(10).selectExpr("cast(id as string) as body"), nameserver, orders)
    write(spark.range(5, 15).selectExpr("cast(id as string) as body"), nameserver, payments)
    ordered = read(spark, nameserver, orders, "order_id ordered_at")
    paid = read(spark, nameserver, payments, "payment_id paid_at")
    in_time = (
        "order_id = payment_id AND paid_at BETWEEN ordered_at - INTERVAL 1 MINUTE AND ordered_at + INTERVAL 1 MINUTE"
    )
    query = (
        ordered.join(paid, on=F.expr(in_time))
        .writeStream.format("parquet")
        .option("path", f"{directory}/rows")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(f"{directory}/rows").select("order_id").orderBy("order_id")


if __name__ == "__main__":
    with demonstration() as (spark, nameserver):
        run = uuid.uuid4().hex[:8]
        with tempfile.TemporaryDirectory() as directory:
            paid_orders(spark, nameserver, f"orders_{run}", f"payments_{run}", directory).show()
