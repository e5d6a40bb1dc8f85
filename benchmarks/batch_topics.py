"""Spark's write and read of a batch topic beside those of a plain topic, on a real Apache RocketMQ 5.4.0."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from benchmarks.spark_batches import QUEUES, QUICK_ROWS, ROWS, settled, spark_read, spark_session, spark_write
from benchmarks.support.pairs import Pairs, cpu_seconds
from pyrmq_core.blocking import Admin
from tests.support.apache import ApacheCluster, boot_cluster

BATCH, PLAIN = "batch", "plain"
HEADING = f"{'':44} {'batch, rows/s':>12} {'plain, rows/s':>12} {'ratio':>7}"


def main(*, quick: bool) -> None:
    rows_of = QUICK_ROWS if quick else ROWS
    with spark_session() as spark:
        print(HEADING)
        for body_bytes, rows in rows_of.items():
            written, read = Road(), Road()
            for _ in range(1 if quick else 6):
                with boot_cluster("5.4.0", ("broker-a",)) as cluster:
                    run_pair(spark, cluster, body_bytes, rows, written, read)
            written.tell(f"Spark write, until readable, {body_bytes} B")
            read.tell(f"Spark read, 12 columns with map, {body_bytes} B")


class Road:
    """The rates of pairs, and the broker's processor seconds of each side per million rows."""

    def __init__(self) -> None:
        self.rates, self.broker = Pairs(), Pairs()

    def tell(self, name: str) -> None:
        print(self.rates.line(name), flush=True)
        print(self.broker.line("  rows a second of the broker's processor"), flush=True)

    def run(self, cluster: ApacheCluster, rows: int, of_topic: Callable[[str], float]) -> None:
        """`of_topic` gives the seconds of one run; the pairs take turns in which goes first."""
        spent: dict[str, float] = {}

        def rate(topic: str) -> float:
            words = str(cluster.brokers["broker-a"].home)
            before = cpu_seconds(words)
            seconds = of_topic(topic)
            spent[topic] = max(0.01, cpu_seconds(words) - before)
            return rows / seconds

        self.rates.run(lambda: rate(BATCH), lambda: rate(PLAIN))
        self.broker.ours.append(rows / spent[BATCH])
        self.broker.theirs.append(rows / spent[PLAIN])


def run_pair(
    spark: SparkSession, cluster: ApacheCluster, body_bytes: int, rows: int, written: Road, read: Road
) -> None:
    """One write and one read of each kind of topic, on a store of their own, the broker warmed before."""
    nameserver, address = cluster.nameserver.address, cluster.brokers["broker-a"].address
    with Admin(nameserver=nameserver) as admin:
        for topic in (BATCH, PLAIN):
            for name in (topic, f"warm-{topic}"):
                admin.create_topic(name, queues=QUEUES, batch=topic == BATCH)
    for topic in (BATCH, PLAIN):
        spark_write(spark, nameserver, f"warm-{topic}", 50_000, body_bytes)
        spark_read(spark, nameserver, f"warm-{topic}")

    def write(topic: str) -> float:
        return spark_write(spark, nameserver, topic, rows, body_bytes) + settled(address, topic, rows)

    written.run(cluster, rows, write)
    read.run(cluster, rows, lambda topic: spark_read(spark, nameserver, topic))
