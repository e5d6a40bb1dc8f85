"""The connector beside raw sockets and Java's client, on a real Apache RocketMQ 5.4.0: rates, ratios and CPU.

    python -m benchmarks.connector [--quick] [--sittings N] [--cases NAME...] [--output ...]

Each path of a sitting has a broker and a store of its own, warmed first; it writes, waits until all is readable, and
reads it back. Every second sitting runs the paths in the reverse order. *Readable* is polled every 20 ms. A quick run
has one sitting of the first size, and one broker for all.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.support import raw
from benchmarks.support.brokers import WARM, Sitting, shared_broker, sitting
from benchmarks.support.figures import HEADING, OUTPUT, Compared, Figure, Pair, Sittings, timed, write_json
from benchmarks.support.spark_jobs import QUEUES, read_frame, spark_session, write_frame
from benchmarks.support.user_rows import CASES, Case
from pyrmq_core.blocking import Producer, PullConsumer
from tests.support.java_programs import run_java
from tests.support.jvm import JavaFailed

ROWS = {"100": 2_000_000, "1024": 500_000, "json": 1_000_000, "100-equal": 2_000_000, "1024-equal": 500_000}
QUICK_SHARE = 20
ARROW_BATCH = 10_000
LITE_PULL = Path(__file__).parent / "java" / "LitePull.java"


# Ours and the other of each comparison. A write ends when all is readable.
COMPARED = (
    Pair("send_arrow | raw batches", "library write", "raw write"),
    Pair("Spark write | raw batches", "spark write", "raw write"),
    Pair("read_arrow, all columns | raw pulls", "library read", "raw read"),
    Pair("Spark read, all columns | raw pulls", "spark read", "raw read"),
    Pair("Spark read, body only | all columns", "spark read body", "spark read"),
    Pair("read_arrow | Java lite pull, 32 a pull", "library read", "java read"),
    Pair("Spark write, batch topic | plain topic", "spark batch write", "spark write"),
    Pair("Spark read, batch topic | plain topic", "spark batch read", "spark read"),
)

TimedPath = Callable[[Sitting], Iterator[tuple[str, Figure]]]


def raw_path(at: Sitting) -> Iterator[tuple[str, Figure]]:
    """Writes and reads prepared bytes over plain sockets, then reads them with Java's lite pull consumer."""
    with timed() as watch:
        seconds = raw.write(at.address, at.plain, QUEUES, at.rows, at.case)
    yield "raw write", Figure(at.rows / seconds, watch.cpu * 1e6 / at.rows)
    seconds, cpu = raw.read(at.address, at.plain, QUEUES)
    yield "raw read", Figure(at.rows / seconds, cpu * 1e6 / at.rows)
    try:
        rate = run_java("5.4.0", LITE_PULL, at.nameserver, at.plain, str(at.rows), timeout=300, java_options=())
    except JavaFailed as error:
        print(f"Java's client failed, a sitting goes without it: {str(error).splitlines()[-1]}", flush=True)
        return
    yield "java read", Figure(float(re.findall(r"rate ([\d.]+)", rate)[-1]), 0.0)


def library_path(at: Sitting) -> Iterator[tuple[str, Figure]]:
    """Writes and reads record batches by `send_arrow` and `read_arrow`, over one connection."""
    rows = pa.Table.from_batches([at.case.record_batch(ARROW_BATCH)] * (at.rows // ARROW_BATCH))
    with Producer("benchmark", nameserver=at.nameserver) as producer:
        producer.send_arrow(rows.slice(0, ARROW_BATCH), topic=WARM)
        with timed() as watch:
            producer.send_arrow(rows, topic=at.plain)
        watch.seconds += at.readable(at.plain)
    yield "library write", watch.figure(at.rows)
    with PullConsumer("benchmark", nameserver=at.nameserver) as consumer:
        drain(consumer, WARM)
        with timed() as watch:
            drain(consumer, at.plain)
    yield "library read", watch.figure(at.rows)


def drain(consumer: PullConsumer, topic: str) -> None:
    for queue in consumer.message_queues(topic):
        with consumer.read_arrow(queue, 0, consumer.max_offset(queue)) as batches:
            for _ in batches:
                pass


def spark_path(at: Sitting, *, batch_topic: bool = False) -> Iterator[tuple[str, Figure]]:
    """Runs the Spark jobs that a user would write."""
    name, topic = ("spark batch", at.batched) if batch_topic else ("spark", at.plain)
    with timed(workers=True) as watch:
        write_frame(at.spark, at.nameserver, topic, at.rows, at.case, QUEUES)
    watch.seconds += at.readable(topic)
    yield f"{name} write", watch.figure(at.rows)
    with timed(workers=True) as watch:
        read_frame(at.spark, at.nameserver, topic)
    yield f"{name} read", watch.figure(at.rows)
    if not batch_topic:
        with timed(workers=True) as watch:
            read_frame(at.spark, at.nameserver, topic, "body binary")
        yield "spark read body", watch.figure(at.rows)


PATHS: tuple[TimedPath, ...] = (raw_path, library_path, spark_path, partial(spark_path, batch_topic=True))


def sit(spark: SparkSession, paths: Sequence[TimedPath], rows: int, case: Case, number: int, results: Sittings) -> None:
    """Runs every path once, in the reverse order where `number` is odd."""
    for path in paths[:: -1 if number % 2 else 1]:
        with sitting(spark, rows, case) as at:
            for name, figure in path(at):
                results.add(name, figure)


def main(
    *,
    quick: bool = False,
    sittings: int = 5,
    cases: Sequence[str] = tuple(ROWS),
    output: Path = OUTPUT,
) -> None:
    compared: list[Compared] = []
    with spark_session() as spark, shared_broker(spark) if quick else nullcontext():
        for name in cases[:1] if quick else cases:
            case, rows, results = CASES[name], ROWS[name] // (QUICK_SHARE if quick else 1), Sittings()
            print(f"rows {name}\n{HEADING}", flush=True)
            for number in range(1 if quick else sittings):
                sit(spark, PATHS, rows, case, number, results)
                for path, figures in results.figures.items():
                    print(f"{path:24} {figures[-1].rate:>12,.0f} /s {figures[-1].cpu:>6.2f} s a million", flush=True)
            for pair in COMPARED:
                if (row := results.compared(pair)) is not None:
                    compared.append(row)
                    print(row.line(), flush=True)
            for path in ("raw write", "raw read"):
                cpu = statistics.median(figure.cpu for figure in results.figures[path])
                print(f"{path}: client CPU {cpu:.2f} s a million", flush=True)
            write_json(output / "connector.json", compared)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one sitting with few rows, to see that it works")
    parser.add_argument("--sittings", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=list(ROWS), default=list(ROWS), help="of `user_rows`")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="a directory for connector.json")
    chosen = parser.parse_args()
    main(**vars(chosen))
