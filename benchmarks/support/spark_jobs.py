"""The Spark session and the jobs that benchmarks time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

QUEUES = 4
ROOT = Path(__file__).parent.parent.parent


@contextmanager
def spark_session(heap: str = "3g", java: Sequence[str] = ()) -> Iterator[SparkSession]:
    """Yields the session that is open already, or else a new one, whose JVM has the further options `java`.

    The JVM's heap is touched beforehand: the first use of a page costs more here than filling it.
    """
    if (opened := SparkSession.getActiveSession()) is not None:
        yield opened
        return
    builder = SparkSession.builder.master("local[2]").appName("pyrmq benchmark")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": " ".join((f"-Xms{heap} -XX:+AlwaysPreTouch", *java)),
        "spark.executorEnv.PYTHONPATH": str(ROOT),  # the trivial sources lie here
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def messages(spark: SparkSession, rows: int, body_bytes: int, partitions: int) -> DataFrame:
    """Returns bodies of one size, each with its own key and the same tag, made at little cost to Spark."""
    return spark.range(0, rows, 1, partitions).select(
        F.lit(b"x" * body_bytes).alias("body"),
        F.concat(F.lit("key-"), F.col("id").cast("string")).alias("keys"),
        F.lit("TagA").alias("tags"),
    )


def write_frame(spark: SparkSession, nameserver: str, topic: str, rows: int, body_bytes: int, partitions: int) -> None:
    """Writes as a user would, every option its default."""
    writer = messages(spark, rows, body_bytes, partitions).write.format("rocketmq")
    writer.option("nameServer", nameserver).option("topic", topic).mode("append").save()


def read_frame(spark: SparkSession, nameserver: str, topic: str, schema: str | None = None) -> None:
    """Reads the whole topic, every column or those of `schema`, and drops the rows."""
    reader = spark.read.format("rocketmq").option("nameServer", nameserver).option("topic", topic)
    frame = (reader if schema is None else reader.schema(schema)).load()
    frame.write.format("noop").mode("overwrite").save()
