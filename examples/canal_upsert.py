"""Canal's messages of a table, from a stream into plain Parquet: the latest change of each key."""

import json
import tempfile
import uuid

from example_session import demonstration, write
from pyspark.sql import DataFrame, SparkSession

from pyrmq_spark import cdc

COLUMNS = "id bigint, name string, amount decimal(12,2), note string"


def keep_table(spark: SparkSession, nameserver: str, topic: str, directory: str) -> DataFrame:
    """Returns the table after all changes that the topic holds; called again, it goes on where it was."""
    table = f"{directory}/table"

    def upsert(batch: DataFrame, number: int) -> None:
        """Applies a batch. One that failed and runs again changes nothing twice."""
        cdc.apply(batch, table, tool="canal", schema=COLUMNS, key="id", table="shop.customers")

    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=nameserver, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
        .load()
    )
    query = messages.writeStream.foreachBatch(upsert).option("checkpointLocation", f"{directory}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    return cdc.table(spark, table)


if __name__ == "__main__":
    row = {"id": "1", "name": "ann", "amount": "1.50", "note": None}
    message = {"database": "shop", "table": "customers", "isDdl": False, "es": 1_700_000_000_000}
    bodies = [
        json.dumps(message | {"type": "INSERT", "data": [row, row | {"id": "2", "name": "bob"}], "old": None}),
        json.dumps(message | {"type": "UPDATE", "data": [row | {"id": "3"}], "old": [{"id": "1"}]}),
    ]
    with demonstration() as (session, address), tempfile.TemporaryDirectory() as folder:
        name = f"binlog_{uuid.uuid4().hex[:8]}"
        rows = session.createDataFrame([(body, "shop") for body in bodies], "body string, shardingKey string")
        write(rows.coalesce(1), address, name)  # as Canal: one writer, in the database's order
        keep_table(session, address, name, folder).show()
