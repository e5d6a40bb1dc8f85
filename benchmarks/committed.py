"""The cost of committed delivery: writes, reads and small batches of a stream, beside those at least once.

    python -m benchmarks committed

A real Apache RocketMQ 5.4.0, rows of `user_rows`, pairs run A B B A. A ratio above 1 is what committed delivery costs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark_sinks import in_pairs, line
from benchmarks.support.brokers import BROKER_SETTINGS, one_broker, shared_broker
from benchmarks.support.processes import SPARK, cpu_seconds
from benchmarks.support.spark_jobs import QUEUES, messages, spark_session
from benchmarks.support.user_rows import LARGE, SMALL
from pyrmq_core.blocking import Admin

BATCH_ROWS = 10
COMMITTED = {"delivery": "committed"}
TOPICS = count(1)


def main(*, quick: bool) -> None:
    rows, batches, pairs = (20_000, 4, 1) if quick else (1_000_000, 20, 5)
    with spark_session() as spark, shared_broker(spark) if quick else nullcontext():
        for case in (SMALL,) if quick else (SMALL, LARGE):
            few = rows // 4 if case is LARGE else rows
            frame = messages(spark, case, few, QUEUES)
            for kind in ("normal", "batch"):
                with one_broker(BROKER_SETTINGS) as cluster:
                    of = f"{few:,} rows, {case.name}, {kind} topic"
                    for text in costs(spark, cluster.nameserver.address, frame, kind, pairs, of):
                        print(text, flush=True)
        with one_broker(BROKER_SETTINGS) as cluster:
            print(small_batches(spark, cluster.nameserver.address, batches, pairs), flush=True)


def costs(spark: SparkSession, nameserver: str, frame: DataFrame, kind: str, pairs: int, of: str) -> Iterator[str]:
    """Yields the lines of a write and of a read. The committed read is of a topic that holds no other rows."""
    name = topic(nameserver, kind)
    write(nameserver, name, frame, **COMMITTED)  # makes the manifest, and warms the JVM
    plain, committed = partial(write, nameserver, name, frame), partial(write, nameserver, name, frame, **COMMITTED)
    yield line("a committed write", in_pairs(plain, committed, pairs), of)
    name = topic(nameserver, kind)
    write(nameserver, name, frame, **COMMITTED)
    all_rows, committed_rows = (
        partial(read, spark, nameserver, name),
        partial(read, spark, nameserver, name, isolation="committed"),
    )
    all_rows()
    yield line("a committed read", in_pairs(all_rows, committed_rows, pairs), of)


def topic(nameserver: str, kind: str) -> str:
    """Creates one more topic, for messages or for batches, and returns its name."""
    name = f"t{next(TOPICS)}"
    attributes = {"message.type": "NORMAL"} if kind == "normal" else {"message.type": "NORMAL", "queue.type": "BatchCQ"}
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(name, queues=QUEUES, attributes=attributes)
    return name


def write(nameserver: str, name: str, frame: DataFrame, **options: str) -> tuple[float, float]:
    """Writes the rows. Returns the seconds by the clock, and those of the job's processors."""
    cpu, began = cpu_seconds(SPARK), time.perf_counter()
    frame.write.format("rocketmq").options(nameServer=nameserver, topic=name, **options).mode("append").save()
    return time.perf_counter() - began, cpu_seconds(SPARK) - cpu


def read(spark: SparkSession, nameserver: str, name: str, **options: str) -> tuple[float, float]:
    """Reads all columns. Returns the seconds as `write` does."""
    cpu, began = cpu_seconds(SPARK), time.perf_counter()
    frame = spark.read.format("rocketmq").options(nameServer=nameserver, topic=name, **options).load()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began, cpu_seconds(SPARK) - cpu


def small_batches(spark: SparkSession, nameserver: str, batches: int, pairs: int) -> str:
    """Returns the line of a stream's batches of few rows: how much longer each takes when it is committed."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for _ in range(batches):
            few = spark.range(0, BATCH_ROWS, 1, 1).selectExpr("cast(id as string) as body").coalesce(1)
            few.write.mode("append").parquet(str(directory / "rows"))

        def run(**options: str) -> float:
            rows = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1)
            writer = rows.parquet(str(directory / "rows")).writeStream.format("rocketmq")
            writer = writer.options(nameServer=nameserver, topic=to, **options)
            query = writer.option("checkpointLocation", str(directory / f"{next(TOPICS)}"))
            started = query.trigger(availableNow=True).start()
            started.awaitTermination()
            return statistics.median(progress.durationMs["addBatch"] for progress in started.recentProgress[1:])

        to = topic(nameserver, "normal")
        run(), run(**COMMITTED)
        more = [run(**COMMITTED) - run() for _ in range(pairs)]
    return (
        f"a committed batch of {BATCH_ROWS} rows takes {statistics.median(more):.0f} ms longer "
        f"({min(more):.0f} to {max(more):.0f}; {pairs} pairs of {batches} batches)"
    )
