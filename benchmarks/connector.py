"""The connector beside raw sockets and Java's client, on a real Apache RocketMQ 5.4.0: rates, ratios and CPU.

    python -m benchmarks.connector [--quick] [--sittings N] [--cases NAME...] [--output ...]

Each path of a sitting has a broker and a store of its own, warmed first; it writes, waits until all is readable, and
reads it back. Every second sitting runs the paths in the reverse order. *Readable* is polled every 20 ms. A quick run
has one sitting of the first size, and one broker for all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.support import raw
from benchmarks.support.brokers import WARM, Sitting, shared_broker, sitting
from benchmarks.support.java_clients import lite_pull
from benchmarks.support.pairs import Clock, Figure, heading, table_line
from benchmarks.support.processes import worker_cpu
from benchmarks.support.results import OUTPUT, write_json
from benchmarks.support.spark_jobs import QUEUES, read_frame, seconds_of, spark_session, write_frame
from benchmarks.support.user_rows import CASES, Case
from pyrmq_core.blocking import Producer, PullConsumer
from tests.support.jvm import JavaFailed

ROWS = {"100": 2_000_000, "1024": 500_000, "json": 1_000_000, "100-equal": 2_000_000, "1024-equal": 500_000}
QUICK_SHARE = 20
ARROW_BATCH = 10_000

# Ours and the other of each comparison. A write ends when all is readable.
COMPARED = (
    ("send_arrow | raw batches", "library write", "raw write"),
    ("Spark write | raw batches", "spark write", "raw write"),
    ("read_arrow, all columns | raw pulls", "library read", "raw read"),
    ("Spark read, all columns | raw pulls", "spark read", "raw read"),
    ("Spark read, body only | all columns", "spark read body", "spark read"),
    ("read_arrow | Java lite pull, 32 a pull", "library read", "java read"),
    ("Spark write, batch topic | plain topic", "spark batch write", "spark write"),
    ("Spark read, batch topic | plain topic", "spark batch read", "spark read"),
)

TimedPath = Callable[[Sitting], Iterator[tuple[str, Figure]]]


def raw_path(at: Sitting) -> Iterator[tuple[str, Figure]]:
    """Writes and reads prepared bytes over plain sockets, then reads them with Java's lite pull consumer."""
    clock = Clock()
    seconds = raw.write(at.address, at.plain, QUEUES, at.rows, at.case)
    _, cpu = clock.seconds()
    yield "raw write", Figure.of(at.rows, seconds, cpu)
    yield "raw read", Figure.of(at.rows, *raw.read(at.address, at.plain, QUEUES))
    try:
        yield "java read", lite_pull(at.nameserver, at.plain, at.rows)
    except JavaFailed as error:
        print(f"Java's client failed, a sitting goes without it: {str(error).splitlines()[-1]}", flush=True)


def library_path(at: Sitting) -> Iterator[tuple[str, Figure]]:
    """Writes and reads record batches by `send_arrow` and `read_arrow`, over one connection."""
    rows = pa.Table.from_batches([at.case.record_batch(ARROW_BATCH)] * (at.rows // ARROW_BATCH))
    with Producer("benchmark", nameserver=at.nameserver) as producer:
        producer.send_arrow(rows.slice(0, ARROW_BATCH), topic=WARM)
        clock = Clock()
        producer.send_arrow(rows, topic=at.plain)
        yield "library write", written(at, at.plain, *clock.seconds())
    with PullConsumer("benchmark", nameserver=at.nameserver) as consumer:
        drain(consumer, WARM)
        clock = Clock()
        drain(consumer, at.plain)
        yield "library read", clock.figure(at.rows)


def drain(consumer: PullConsumer, topic: str) -> None:
    for queue in consumer.message_queues(topic):
        with consumer.read_arrow(queue, 0, consumer.max_offset(queue)) as batches:
            for _ in batches:
                pass


def spark_path(at: Sitting, *, batch_topic: bool = False) -> Iterator[tuple[str, Figure]]:
    """Runs the Spark jobs that a user would write."""
    name, topic = ("spark batch", at.batched) if batch_topic else ("spark", at.plain)
    write = partial(write_frame, at.spark, at.nameserver, topic, at.rows, at.case)
    yield f"{name} write", written(at, topic, *seconds_of(write, worker_cpu))
    read = partial(read_frame, at.spark, at.nameserver, topic)
    yield f"{name} read", Figure.of(at.rows, *seconds_of(read, worker_cpu))
    if not batch_topic:
        yield "spark read body", Figure.of(at.rows, *seconds_of(partial(read, "body binary"), worker_cpu))


def written(at: Sitting, topic: str, seconds: float, cpu: float) -> Figure:
    """Returns the figure of a write, which ends when all of it is readable."""
    return Figure.of(at.rows, seconds + at.readable(topic), cpu)


PATHS: tuple[TimedPath, ...] = (raw_path, library_path, spark_path, partial(spark_path, batch_topic=True))


def sit(spark: SparkSession, rows: int, case: Case, number: int) -> dict[str, Figure]:
    """Runs every path once, in the reverse order where `number` is odd. Returns its figures by name."""
    figures = {}
    for path in PATHS[:: -1 if number % 2 else 1]:
        with sitting(spark, rows, case) as at:
            for name, figure in path(at):
                figures[name] = figure
                print(f"{name:24} {figure.rate:>12,.0f} /s {figure.cpu_us:>6.2f} s a million", flush=True)
    return figures


def main(
    *,
    quick: bool = False,
    sittings: int = 5,
    cases: Sequence[str] = tuple(ROWS),
    output: Path = OUTPUT,
) -> None:
    results: list[dict[str, object]] = []
    with spark_session() as spark, shared_broker(spark) if quick else nullcontext():
        for name in cases[:1] if quick else cases:
            print(f"rows {name}", flush=True)
            rows = ROWS[name] // (QUICK_SHARE if quick else 1)
            sat = [sit(spark, rows, CASES[name], number) for number in range(1 if quick else sittings)]
            print(heading("ours /s", "theirs /s"))
            for what, ours, theirs in COMPARED:
                pairs = [(figures[ours], figures[theirs]) for figures in sat if theirs in figures]
                if pairs:
                    results.append({"rows": name, "name": what, "pairs": [list(map(asdict, pair)) for pair in pairs]})
                    print(table_line(what, pairs), flush=True)
            write_json(output / "connector.json", results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one sitting with few rows, to see that it works")
    parser.add_argument("--sittings", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=list(ROWS), default=list(ROWS), help="of `user_rows`")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="a directory for connector.json")
    chosen = parser.parse_args()
    main(**vars(chosen))
