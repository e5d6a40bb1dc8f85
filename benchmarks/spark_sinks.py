"""The cost of Spark's sink beyond a plain write: ids, properties, keys and commits, and of a batch.

    python -m benchmarks spark_sinks

Jobs write rows of `user_rows` to a real Apache RocketMQ 5.4.0, pairs run A B B A. A cost is the ratio of the processor
time of Spark and its Python workers to that of the same rows without the option. Times by the clock scatter more on a
shared machine.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from benchmarks.support.brokers import one_broker, shared_broker
from benchmarks.support.processes import SPARK, cpu_seconds
from benchmarks.support.spark_jobs import QUEUES, messages, spark_session
from benchmarks.support.user_rows import EQUAL, LARGE, SMALL, Case
from pyrmq_core.blocking import Admin

KEYS = 10_000
ROWS_A_FILE = 10


def main(*, quick: bool) -> None:
    rows, files, pairs = (20_000, 5, 1) if quick else (1_000_000, 20, 5)
    with spark_session() as spark, shared_broker(spark) if quick else nullcontext():
        spark.dataSource.register(DroppedRows)
        for case in (SMALL,) if quick else (SMALL, LARGE, EQUAL):
            few = rows // 4 if case is LARGE else rows
            plain = frame(spark, few, case)
            others: dict[str, tuple[DataFrame, dict[str, str]]] = {
                "messageIds=content": (plain, {"messageIds": "content"}),
                "properties of 5 entries": (plain.withColumn("properties", five_properties()), {}),
                f"shardingKey of {KEYS:,}": (plain.withColumn("shardingKey", key()), {}),
                "delivery=committed": (plain, {"delivery": "committed"}),
            }
            for what, (other, options) in others.items():
                with broker() as nameserver:
                    write(spark, plain, nameserver)
                    print(
                        cost(spark, nameserver, f"{what}, rows {case.name}", plain, other, options, few, pairs),
                        flush=True,
                    )
        with broker() as nameserver:
            print(floor(spark, nameserver, files, pairs), flush=True)


@contextmanager
def broker() -> Iterator[str]:
    """Yields the NameServer of a new broker: the store lies in memory, which all rows together would fill.

    Within `shared_broker` it is that broker's.
    """
    with one_broker({}) as cluster:
        with Admin(nameserver=cluster.nameserver.address) as admin:
            admin.create_topic("t", queues=QUEUES)
        yield cluster.nameserver.address


def key() -> Column:
    return F.concat(F.lit("customer-"), F.abs(F.hash("keys")) % KEYS)


def five_properties() -> Column:
    return F.create_map(*[part for number in range(5) for part in (F.lit(f"name{number}"), F.col("keys"))])


def frame(spark: SparkSession, rows: int, case: Case) -> DataFrame:
    return messages(spark, case, rows, QUEUES).select("body", "keys")


def write(spark: SparkSession, rows: DataFrame, nameserver: str, **options: str) -> tuple[float, float]:
    """Writes the rows. Returns the seconds by the clock, and those of the job's processors."""
    cpu, began = cpu_seconds(SPARK), time.perf_counter()
    writer = rows.write.format("rocketmq").options(nameServer=nameserver, topic="t", **options)
    writer.mode("append").save()
    return time.perf_counter() - began, cpu_seconds(SPARK) - cpu


def cost(
    spark: SparkSession,
    nameserver: str,
    what: str,
    plain: DataFrame,
    other: DataFrame,
    options: dict[str, str],
    rows: int,
    pairs: int,
) -> str:
    write(spark, other, nameserver, **options)  # a warm-up: the JVM compiles hot code as it runs
    ratios = in_pairs(
        lambda: write(spark, plain, nameserver), lambda: write(spark, other, nameserver, **options), pairs
    )
    return line(what, ratios, f"{rows:,} rows")


def in_pairs(
    run: Callable[[], tuple[float, float]], other_run: Callable[[], tuple[float, float]], pairs: int
) -> list[tuple[float, float]]:
    """Returns each pair's ratios, other to one: of seconds by the clock and of processor time."""
    ratios = []
    for pair in range(pairs):
        first, second = (run(), other_run()) if pair % 2 == 0 else reversed((other_run(), run()))
        ratios.append((second[0] / first[0], second[1] / first[1]))
    return ratios


def line(what: str, ratios: Sequence[tuple[float, float]], of: str) -> str:
    clock, cpu = ([pair[number] for pair in ratios] for number in (0, 1))
    return (
        f"{what:40} processor time x {statistics.median(cpu):.2f} ({min(cpu):.2f} to {max(cpu):.2f}), "
        f"clock x {statistics.median(clock):.2f} ({min(clock):.2f} to {max(clock):.2f}); {len(ratios)} pairs, {of}"
    )


# --- A stream's batches


class DroppedRows(DataSource):
    """A sink for streams that keeps no row."""

    @classmethod
    def name(cls) -> str:
        return "dropped"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DroppingWriter:  # noqa: N802 - Spark's name
        return DroppingWriter()


class DroppingWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()


def floor(spark: SparkSession, nameserver: str, files: int, pairs: int) -> str:
    """Returns the line of a stream's batches, of so few rows that their cost is that of the batch itself."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for _ in range(files):
            spark.range(0, ROWS_A_FILE, 1, 1).selectExpr("cast(id as string) as body").coalesce(1).write.mode(
                "append"
            ).parquet(str(directory / "rows"))
        runs = iter(range(1_000_000))

        def run(sink: str) -> tuple[float, float]:
            rows = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1)
            writer = rows.parquet(str(directory / "rows")).writeStream.format(sink)
            writer = writer.options(nameServer=nameserver, topic="t") if sink == "rocketmq" else writer
            cpu, began = cpu_seconds(SPARK), time.perf_counter()
            query = writer.option("checkpointLocation", str(directory / f"{next(runs)}"))
            query.trigger(availableNow=True).start().awaitTermination()
            return time.perf_counter() - began, cpu_seconds(SPARK) - cpu

        run("rocketmq")
        return line(
            "a stream's batch, beside a trivial sink",
            in_pairs(lambda: run(DroppedRows.name()), lambda: run("rocketmq"), pairs),
            f"{files} batches of {ROWS_A_FILE} rows",
        )
