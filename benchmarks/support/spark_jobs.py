"""The Spark session and the jobs that benchmarks time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from benchmarks.support.user_rows import PROPERTIES_EACH, REGION, Case

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


def messages(spark: SparkSession, case: Case, rows: int, partitions: int) -> DataFrame:
    """Returns the rows of the case, made at little cost to Spark: texts are taken from a list, not made."""
    columns = {
        "body": picked(case.bodies).cast("binary"),
        "keys": F.concat(picked(case.heads), (F.col("id") + case.first).cast("string")),
        "tags": picked(case.tags),
    }
    if not case.equal:
        pairs = F.create_map(F.lit("region"), F.lit(REGION), F.lit("attempt"), F.col("id").cast("string"))
        columns["properties"] = F.when(F.col("id") % PROPERTIES_EACH == 0, pairs)
    return spark.range(0, rows, 1, partitions).select(*(column.alias(name) for name, column in columns.items()))


def picked(texts: Sequence[str]) -> Column:
    """Returns the text of each row's number, counted round. None holds a line's end. Spark splits them once."""
    if len(texts) == 1:
        return F.lit(texts[0])
    place = (F.col("id") % len(texts)).cast("int")
    return F.split(F.lit("\n".join(texts)), "\n")[place]


def write_frame(spark: SparkSession, nameserver: str, topic: str, rows: int, case: Case, partitions: int) -> None:
    """Writes as a user would, every option its default."""
    writer = messages(spark, case, rows, partitions).write.format("rocketmq")
    writer.option("nameServer", nameserver).option("topic", topic).mode("append").save()


def read_frame(spark: SparkSession, nameserver: str, topic: str, schema: str | None = None) -> None:
    """Reads the whole topic, every column or those of `schema`, and drops the rows."""
    reader = spark.read.format("rocketmq").option("nameServer", nameserver).option("topic", topic)
    frame = (reader if schema is None else reader.schema(schema)).load()
    frame.write.format("noop").mode("overwrite").save()
