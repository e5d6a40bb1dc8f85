"""Spark's batch write and read beside raw sockets, on a real Apache RocketMQ 5.4.0; and a write task's memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from benchmarks.support import raw
from benchmarks.support.pairs import HEADING, Pairs, resident_bytes
from pyrmq_core.blocking import Admin
from tests.support.apache import ApacheCluster, boot_cluster

QUEUES = 4
ROWS = {100: 1_000_000, 1024: 250_000}
QUICK_ROWS = {100: 200_000, 1024: 50_000}
MEMORY_ROWS = 5_000_000


def main(*, quick: bool) -> None:
    rows_of = QUICK_ROWS if quick else ROWS
    with spark_session() as spark:
        print(HEADING)
        for body_bytes, rows in rows_of.items():
            writes, reads = Pairs(), Pairs()
            for pair in range(1 if quick else 5):
                with boot_cluster("5.4.0", ("broker-a",)) as cluster:
                    run_pair(spark, cluster, body_bytes, rows, pair, writes, reads)
            print(writes.line(f"Spark write, until readable, {body_bytes} B"), flush=True)
            print(reads.line(f"Spark read, 12 columns with map, {body_bytes} B"), flush=True)
        grown = memory_growth(spark, MEMORY_ROWS // 10 if quick else MEMORY_ROWS)
        print(f"a write task's resident memory after the first 1 % of its rows: + {grown / 1e6:.0f} MB")


def run_pair(
    spark: SparkSession, cluster: ApacheCluster, body_bytes: int, rows: int, pair: int, writes: Pairs, reads: Pairs
) -> None:
    """One write and one read of each road, on a store of their own, the broker warmed before."""
    nameserver, address = cluster.nameserver.address, cluster.brokers["broker-a"].address
    with Admin(nameserver=nameserver) as admin:
        for topic in ("warm", "ours", "theirs"):
            admin.create_topic(topic, queues=QUEUES)
    raw.write(address, "warm", QUEUES, 50_000, body_bytes)
    spark_write(spark, nameserver, "warm", 20_000, body_bytes)
    spark_read(spark, nameserver, "warm")
    writes.run(
        lambda: rows / (spark_write(spark, nameserver, "ours", rows, body_bytes) + settled(address, "ours", rows)),
        lambda: rows / raw.write(address, "theirs", QUEUES, rows, body_bytes),
    )
    reads.run(lambda: rows / spark_read(spark, nameserver, "ours"), lambda: raw_rate(address, "theirs"))


def spark_write(spark: SparkSession, nameserver: str, topic: str, rows: int, body_bytes: int) -> float:
    began = time.perf_counter()
    writer = messages(spark, rows, body_bytes).write.format("rocketmq")
    writer.option("nameServer", nameserver).option("topic", topic).mode("append").save()
    return time.perf_counter() - began


def settled(address: str, topic: str, rows: int) -> float:
    """Seconds from the job's end until all is readable."""
    began = time.perf_counter()
    with raw.Line(address) as line:
        raw.wait_readable(line, topic, QUEUES, rows)
    return time.perf_counter() - began


def spark_read(spark: SparkSession, nameserver: str, topic: str) -> float:
    began = time.perf_counter()
    frame = spark.read.format("rocketmq").option("nameServer", nameserver).option("topic", topic).load()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def raw_rate(address: str, topic: str) -> float:
    seconds, messages = raw.read(address, topic, QUEUES)
    return messages / seconds


def messages(spark: SparkSession, rows: int, body_bytes: int) -> DataFrame:
    return spark.range(0, rows, 1, QUEUES).select(
        F.lit(b"x" * body_bytes).alias("body"),
        F.format_string("key-%06d", F.col("id")).alias("keys"),
        F.lit("TagA").alias("tags"),
    )


def memory_growth(spark: SparkSession, rows: int) -> int:
    """How far the largest Python worker grows from the first 1 % of its rows to its end."""
    sizes: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            sizes.append(resident_bytes("pyspark.daemon"))

    with boot_cluster("5.4.0", ("broker-a",), broker_settings={"mappedFileSizeCommitLog": str(1 << 28)}) as cluster:
        with Admin(nameserver=cluster.nameserver.address) as admin:
            admin.create_topic("memory", queues=QUEUES)
        spark_write(spark, cluster.nameserver.address, "memory", rows // 100, 100)
        watcher = threading.Thread(target=watch)
        watcher.start()
        before = resident_bytes("pyspark.daemon")
        spark_write(spark, cluster.nameserver.address, "memory", rows, 100)
        stop.set()
        watcher.join()
    return max(sizes) - before


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """The JVM's heap is touched beforehand: the first use of a page costs more here than filling it."""
    builder = SparkSession.builder.master("local[2]").appName("pyrmq benchmark")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": "-Xms3g -XX:+AlwaysPreTouch",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
