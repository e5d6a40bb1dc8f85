"""The connector's rate by message size, batch size and partitions, and a write task's memory over its rows.

    python -m benchmarks.sweeps [--quick] [--output DIRECTORY]

On a real Apache RocketMQ 5.4.0, each point on a store of its own, warmed first; a write ends when all is readable. A
quick run has one broker for all.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.connector import arrow_rows, drain
from benchmarks.support.brokers import BROKER_SETTINGS, Sitting, shared_broker, sitting
from benchmarks.support.figures import OUTPUT, Curve, Figure, Point, timed, write_json
from benchmarks.support.plots import draw
from benchmarks.support.processes import WORKERS, resident_bytes
from benchmarks.support.spark_jobs import spark_session, write_frame
from pyrmq_core import AnyQueue, unique_id_runs
from pyrmq_core.blocking import Producer, PullConsumer
from pyrmq_core.columnar import BatchLimit, encode_batches

BODY_BYTES = (10, 100, 1024, 10 * 1024, 100 * 1024)
BATCHES = (10, 100, 1000, 4000)
PARTITIONS = (1, 2, 4, 8)
MESSAGE_BYTES = 100
COMPRESSED_OVER_BYTES = 4096
BYTES_A_POINT = 200_000_000
MOST_ROWS = 1_000_000
MEMORY_ROWS = 20_000_000
WATCHED_SECONDS = 0.25


T = TypeVar("T")


def by_size(spark: SparkSession, scale: int) -> dict[str, Curve]:
    """Measures `send_arrow` and `read_arrow` by body size; sizes compressed by default are run uncompressed too."""
    curves: dict[str, list[Point]] = {}
    for body_bytes in some_of(BODY_BYTES, scale):
        rows = min(MOST_ROWS, BYTES_A_POINT // body_bytes) // scale // 1000 * 1000 or 1000
        for compression in ("zlib", "none") if body_bytes > COMPRESSED_OVER_BYTES else ("zlib",):
            figures = measured(spark, rows, body_bytes, partial(write_and_read, compression))
            for name, figure in zip(("send_arrow, until readable", "read_arrow, all columns"), figures, strict=True):
                curve = name if compression == "zlib" else f"{name}, compression={compression}"
                curves.setdefault(curve, []).append(Point(body_bytes, figure))
    return {name: tuple(points) for name, points in curves.items()}


def write_and_read(compression: str, at: Sitting) -> tuple[Figure, Figure]:
    batch = arrow_rows(at.body_bytes, 1000)
    rows = pa.Table.from_batches([batch] * (at.rows // 1000))
    with Producer("sweep", nameserver=at.nameserver, compression=compression) as producer:
        with timed() as write:
            producer.send_arrow(rows, topic=at.plain)
        write.seconds += at.readable(at.plain)
    with PullConsumer("sweep", nameserver=at.nameserver) as consumer, timed() as read:
        drain(consumer, at.plain)
    return write.figure(at.rows), read.figure(at.rows)


def by_batch(spark: SparkSession, scale: int) -> dict[str, Curve]:
    """Measures rows encoded by columns and sent in requests of so many messages, four under way."""
    curve = []
    for messages in some_of(BATCHES, scale):
        rows = min(MOST_ROWS, messages * 10_000) // scale // 10_000 * 10_000 or 10_000
        curve.append(Point(messages, measured(spark, rows, MESSAGE_BYTES, partial(in_batches, messages))))
    return {"encoded and sent, until readable": tuple(curve)}


def in_batches(messages: int, at: Sitting) -> Figure:
    batch = arrow_rows(at.body_bytes, 10_000)
    limit = BatchLimit(messages=messages)
    with Producer("sweep", nameserver=at.nameserver) as producer, producer.open_window() as window, timed() as watch:
        for _ in range(at.rows // batch.num_rows):
            for payload in encode_batches(batch, at.plain, unique_id_runs, limit, checked=True):
                window.put(payload, AnyQueue())
        window.drain()
        watch.seconds += at.readable(at.plain)
    return watch.figure(at.rows)


def by_partitions(spark: SparkSession, scale: int) -> dict[str, Curve]:
    """Measures a Spark write by the number of its partitions, on two cores."""

    def spark_write(partitions: int, at: Sitting) -> Figure:
        with timed(workers=True) as watch:
            write_frame(at.spark, at.nameserver, at.plain, at.rows, at.body_bytes, partitions)
        watch.seconds += at.readable(at.plain)
        return watch.figure(at.rows)

    rows = MOST_ROWS // scale
    curve = [
        Point(partitions, measured(spark, rows, MESSAGE_BYTES, partial(spark_write, partitions)))
        for partitions in some_of(PARTITIONS, scale)
    ]
    return {"Spark write, until readable": tuple(curve)}


def some_of(places: Sequence[int], scale: int) -> Sequence[int]:
    """Returns all places, or, scaled down, the first and the last but one."""
    return places if scale == 1 else (places[0], places[-2])


def measured(spark: SparkSession, rows: int, body_bytes: int, measure: Callable[[Sitting], T]) -> T:
    with sitting(spark, rows, body_bytes) as at:
        return measure(at)


def memory_over_time(spark: SparkSession, rows: int) -> list[tuple[float, int]]:
    """Samples one write: seconds since its start, and the resident bytes of the largest Python worker."""
    samples: list[tuple[float, int]] = []
    ended = threading.Event()

    def watch() -> None:
        began = perf_counter()
        while not ended.wait(WATCHED_SECONDS):
            samples.append((perf_counter() - began, resident_bytes(WORKERS)))

    settings = {**BROKER_SETTINGS, "deleteWhen": "00", "fileReservedTime": "1"}
    with sitting(spark, rows, MESSAGE_BYTES, settings) as at:
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            write_frame(at.spark, at.nameserver, at.plain, rows, MESSAGE_BYTES, 2)
        finally:
            ended.set()
            watcher.join()
    return samples


def growth(samples: list[tuple[float, int]]) -> int:
    """Returns the most bytes gained since the first hundredth of the samples."""
    beginning = samples[max(1, len(samples) // 100)][1]
    return max(size for _, size in samples) - beginning


def main(*, quick: bool = False, output: Path = OUTPUT) -> None:
    """Prints each curve, and writes JSON and pictures."""
    scale = 20 if quick else 1
    with spark_session() as spark, shared_broker(spark) if quick else nullcontext():
        sweeps = {
            "message size, bytes": by_size(spark, scale),
            "messages a request": by_batch(spark, scale),
            "partitions": by_partitions(spark, scale),
        }
        samples = memory_over_time(spark, MEMORY_ROWS // (100 if quick else 1))
    for x, curves in sweeps.items():
        for name, curve in curves.items():
            print(f"{name}, over {x}")
            for point in curve:
                print(f"{point.x:>10,} {point.figure.rate:>12,.0f} /s {point.figure.cpu:>8.2f} CPU s a million")
    print(f"a write task's resident memory after the first 1 %: + {growth(samples) / 1e6:.0f} MB")
    as_rows = {
        x: {name: [point.as_row for point in curve] for name, curve in curves.items()} for x, curves in sweeps.items()
    }
    write_json(output / "sweeps.json", (), sweeps=as_rows, memory=samples)
    draw(sweeps, samples, output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows a point, to see that it works")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="a directory for sweeps.json and the pictures")
    chosen = parser.parse_args()
    main(quick=chosen.quick, output=chosen.output)
