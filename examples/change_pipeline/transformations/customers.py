"""Keeps a table of a database from Canal's messages in a topic; see `spark-pipeline.yml`."""

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc import canal

spark = SparkSession.active()

COLUMNS = "id bigint, name string, amount decimal(12,2), note string"


@pipelines.temporary_view
def changes() -> DataFrame:
    source = spark.readStream.format("rocketmq").options(topic="binlog", startingOffsets="earliest")
    rows = canal(source.load(), COLUMNS, key="id", table="shop.customers")
    return rows.select("op", "sequence", F.coalesce("after", "before").alias("row")).select("op", "sequence", "row.*")


pipelines.create_streaming_table("customers")
pipelines.create_auto_cdc_flow(
    target="customers",
    source="changes",
    keys=["id"],
    sequence_by="sequence",
    apply_as_deletes="op = 'delete'",
    except_column_list=["op", "sequence"],
)
