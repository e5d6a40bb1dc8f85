"""Canal's messages of a table, from a stream into plain Parquet: the latest change of each key."""

import json
import tempfile
import uuid

from example_session import demonstration, write
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc import canal

COLUMNS = "id bigint, name string, amount decimal(12,2), note string"


def keep_table(spark: SparkSession, nameserver: str, topic: str, directory: str) -> DataFrame:
    """Returns the table after all changes that the topic holds; called again, it goes on where it was."""

    def upsert(batch: DataFrame, number: int) -> None:
        """Writes a new version of the table: a batch that failed and runs again begins with the same one before."""
        changes = canal(batch, COLUMNS, key="id", table="shop.customers")
        if number:
            changes = changes.unionByName(spark.read.parquet(f"{directory}/version={number - 1}"))
        latest = Window.partitionBy("key").orderBy(F.col("sequence").desc())
        kept = changes.withColumn("rank", F.row_number().over(latest)).where("rank = 1").drop("rank")
        kept.write.mode("overwrite").parquet(f"{directory}/version={number}")
        versions.append(number)

    versions: list[int] = []
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=nameserver, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
        .load()
    )
    query = messages.writeStream.foreachBatch(upsert).option("checkpointLocation", f"{directory}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(f"{directory}/version={versions[-1]}")
    # A deleted row stays as its delete, so that a change from before comes too late.
    return rows.where("op <> 'delete'").select("after.*")


if __name__ == "__main__":
    row = {"id": "1", "name": "ann", "amount": "1.50", "note": None}
    message = {"database": "shop", "table": "customers", "isDdl": False, "es": 1_700_000_000_000}
    bodies = [
        json.dumps(message | {"type": "INSERT", "data": [row, row | {"id": "2", "name": "bob"}], "old": None}),
        json.dumps(message | {"type": "UPDATE", "data": [row | {"id": "3"}], "old": [{"id": "1"}]}),
    ]
    with demonstration() as (session, address), tempfile.TemporaryDirectory() as folder:
        name = f"binlog_{uuid.uuid4().hex[:8]}"
        write(
            session.createDataFrame([(body, "shop") for body in bodies], "body string, shardingKey string"),
            address,
            name,
        )
        keep_table(session, address, name, folder).show()
