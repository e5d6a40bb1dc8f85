"""The cost of committed delivery: writes, reads and small batches of a stream, beside those at least once.

    python -m benchmarks committed

A real Apache RocketMQ 5.4.0, rows of `user_rows`, pairs run A B B A. A ratio above 1 is what committed delivery costs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from benchmarks.support.brokers import BROKER_SETTINGS, new_topic, one_broker, shared_broker
from benchmarks.support.spark_jobs import (
    BATCH_ROWS,
    QUEUES,
    cost_line,
    messages,
    read_frame,
    small_batches,
    spark_session,
    write_rows,
)
from benchmarks.support.user_rows import LARGE, SMALL

COMMITTED = {"delivery": "committed"}


def main(*, quick: bool) -> None:
    rows, batches, pairs = (20_000, 4, 1) if quick else (1_000_000, 20, 5)
    with spark_session() as spark, shared_broker(spark) if quick else nullcontext():
        for case in (SMALL,) if quick else (SMALL, LARGE):
            few = rows // 4 if case is LARGE else rows
            frame = messages(spark, case, few, QUEUES)
            for batch in (False, True):
                with one_broker(BROKER_SETTINGS) as cluster:
                    of = f"{few:,} rows, {case.name}, {'batch' if batch else 'normal'} topic"
                    for text in costs(spark, cluster.nameserver.address, frame, pairs, of, batch=batch):
                        print(text, flush=True)
        with one_broker(BROKER_SETTINGS) as cluster:
            print(stream_line(spark, cluster.nameserver.address, batches, pairs), flush=True)


def costs(spark: SparkSession, nameserver: str, frame: DataFrame, pairs: int, of: str, *, batch: bool) -> Iterator[str]:
    """Yields the lines of a write and of a read. The committed read is of a topic that holds no other rows."""
    write = partial(write_rows, frame, nameserver, new_topic(nameserver, batch=batch))
    committed = partial(write, **COMMITTED)
    committed()  # makes the manifest, and warms the JVM
    yield cost_line("a committed write", pairs, write, committed, of)
    topic = new_topic(nameserver, batch=batch)
    write_rows(frame, nameserver, topic, **COMMITTED)
    read = partial(read_frame, spark, nameserver, topic)
    read()
    yield cost_line("a committed read", pairs, read, partial(read, isolation="committed"), of)


def stream_line(spark: SparkSession, nameserver: str, batches: int, pairs: int) -> str:
    """Returns the line of a stream's batches of few rows: how much longer each takes when it is committed."""
    with small_batches(spark, batches) as stream:
        topic = new_topic(nameserver)

        def run(**options: str) -> float:
            query = stream("rocketmq", nameServer=nameserver, topic=topic, **options)
            return statistics.median(progress.durationMs["addBatch"] for progress in query.recentProgress[1:])

        run(), run(**COMMITTED)
        more = [run(**COMMITTED) - run() for _ in range(pairs)]
    return (
        f"a committed batch of {BATCH_ROWS} rows takes {statistics.median(more):.0f} ms longer "
        f"({min(more):.0f} to {max(more):.0f}; {pairs} pairs of {batches} batches)"
    )
