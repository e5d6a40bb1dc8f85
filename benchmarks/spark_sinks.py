"""The cost of Spark's sink beyond a plain write: ids, properties, keys and commits, and of a batch.

    python -m benchmarks spark_sinks

Jobs write rows of `user_rows` to a real Apache RocketMQ 5.4.0, pairs run A B B A. A cost is the ratio of the processor
time of Spark and its Python workers to that of the same rows without the option. Times by the clock scatter more on a
shared machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from benchmarks.support.brokers import new_topic, one_broker, shared_broker
from benchmarks.support.spark_jobs import (
    BATCH_ROWS,
    QUEUES,
    cost_line,
    messages,
    small_batches,
    spark_session,
    write_rows,
)
from benchmarks.support.user_rows import EQUAL, LARGE, SMALL

KEYS = 10_000


def main(*, quick: bool) -> None:
    rows, files, pairs = (20_000, 5, 1) if quick else (1_000_000, 20, 5)
    with spark_session() as spark, shared_broker(spark) if quick else nullcontext():
        spark.dataSource.register(DroppedRows)
        for case in (SMALL,) if quick else (SMALL, LARGE, EQUAL):
            few = rows // 4 if case is LARGE else rows
            plain = messages(spark, case, few, QUEUES).select("body", "keys")
            others: dict[str, tuple[DataFrame, dict[str, str]]] = {
                "messageIds=content": (plain, {"messageIds": "content"}),
                "properties of 5 entries": (plain.withColumn("properties", five_properties()), {}),
                f"shardingKey of {KEYS:,}": (plain.withColumn("shardingKey", key()), {}),
                "delivery=committed": (plain, {"delivery": "committed"}),
            }
            for what, (other, options) in others.items():
                with one_broker({}) as cluster:  # a new one: the store lies in memory, which all rows would fill
                    at = cluster.nameserver.address, new_topic(cluster.nameserver.address)
                    write, other_write = partial(write_rows, plain, *at), partial(write_rows, other, *at, **options)
                    write(), other_write()  # a warm-up: the JVM compiles hot code as it runs
                    name = f"{what}, rows {case.name}"
                    print(cost_line(name, pairs, write, other_write, f"{few:,} rows"), flush=True)
        with one_broker({}) as cluster:
            print(floor(spark, cluster.nameserver.address, files, pairs), flush=True)


def key() -> Column:
    return F.concat(F.lit("customer-"), F.abs(F.hash("keys")) % KEYS)


def five_properties() -> Column:
    return F.create_map(*[part for number in range(5) for part in (F.lit(f"name{number}"), F.col("keys"))])


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
    with small_batches(spark, files) as stream:
        run = partial(stream, "rocketmq", nameServer=nameserver, topic=new_topic(nameserver))
        trivial_run = partial(stream, DroppedRows.name())
        run(), trivial_run()
        of = f"{files} batches of {BATCH_ROWS} rows"
        return cost_line("a stream's batch, beside a trivial sink", pairs, trivial_run, run, of)
