"""The Spark session and the jobs that benchmarks time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.support.pairs import Clock, Spread, pairs_of
from benchmarks.support.processes import spark_cpu
from benchmarks.support.user_rows import PROPERTIES_EACH, REGION, Case

QUEUES = 4
# Of a stream's batch whose cost is that of the batch itself.
BATCH_ROWS = 10
ROOT = Path(__file__).parent.parent.parent

# By the clock, and of processors.
Seconds: TypeAlias = tuple[float, float]


@contextmanager
def spark_session(heap: str = "3g") -> Iterator[SparkSession]:
    """Yields the session that is open already, or else a new one.

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
        "spark.driver.extraJavaOptions": f"-Xms{heap} -XX:+AlwaysPreTouch",
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


def write_frame(spark: SparkSession, nameserver: str, topic: str, rows: int, case: Case) -> None:
    """Writes as a user would, every option its default."""
    write_rows(messages(spark, case, rows, QUEUES), nameserver, topic)


def write_rows(frame: DataFrame, nameserver: str, topic: str, **options: str) -> None:
    writer = frame.write.format("rocketmq").options(nameServer=nameserver, topic=topic, **options)
    writer.mode("append").save()


def read_frame(spark: SparkSession, nameserver: str, topic: str, schema: str | None = None, **options: str) -> None:
    """Reads the whole topic, every column or those of `schema`, and drops the rows."""
    reader = spark.read.format("rocketmq").options(nameServer=nameserver, topic=topic, **options)
    drop((reader if schema is None else reader.schema(schema)).load())


def drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


@contextmanager
def small_batches(spark: SparkSession, batches: int) -> Iterator[Callable[..., StreamingQuery]]:
    """Yields a function that streams so many batches of few rows into a sink with options, until all are there."""
    with tempfile.TemporaryDirectory() as name:
        directory, rows = Path(name), str(Path(name) / "rows")
        for _ in range(batches):
            few = spark.range(0, BATCH_ROWS, 1, 1).selectExpr("cast(id as string) as body").coalesce(1)
            few.write.mode("append").parquet(rows)
        runs = count()

        def run(sink: str, **options: str) -> StreamingQuery:
            reader = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1)
            writer = reader.parquet(rows).writeStream.format(sink).options(**options)
            writer = writer.option("checkpointLocation", str(directory / f"{next(runs)}"))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            return query

        yield run


def seconds_of(job: Callable[[], object], cpu: Callable[[], float] = spark_cpu) -> Seconds:
    """Runs a job. Returns its seconds by the clock, and those of the processors of Spark and its Python workers."""
    clock = Clock(cpu)
    job()
    return clock.seconds()


def cost_line(what: str, pairs: int, job: Callable[[], object], other: Callable[[], object], of: str) -> str:
    """Returns the line of pairs of two jobs: how many times as long the other takes."""
    return ratio_line(what, pairs_of(pairs, partial(seconds_of, job), partial(seconds_of, other)), of)


def ratio_line(what: str, pairs: Sequence[tuple[Seconds, Seconds]], of: str) -> str:
    """Returns the line of pairs of times: the ratios of the second to the first."""
    clock, cpu = (Spread.of([second[part] / first[part] for first, second in pairs]) for part in (0, 1))
    return f"{what:40} processor time x {cpu}, clock x {clock}; {len(pairs)} pairs, {of}"
