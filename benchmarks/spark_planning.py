"""The cost of the Spark source before a row is read: planning of many queues, idle triggers, a micro-batch."""

from __future__ import annotations

import json
import statistics
import tempfile
import time

from pyspark.sql import DataFrame
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import BinaryType, StructField, StructType

from benchmarks.support.pairs import Pairs
from benchmarks.support.ready_table import ReadyTable
from benchmarks.support.spark_jobs import spark_session
from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.read.queue_selection import plan_batch
from pyrmq_spark.stream.stream_reader import RocketMQStreamReader
from pyrmq_spark.worker import consumer_of
from tests.support.our_cluster import boot_our_cluster
from tests.support.spark import wait_readable

# The start is a time between the two messages of each queue.
STARTS: dict[str, tuple[str, ...]] = {
    "earliest to latest": (),
    "from a time": ("startingTimestamp",),
    "from a time to a time": ("startingTimestamp", "endingTimestamp"),
}
FUTURE = "2999-01-01T00:00Z"
PAUSE_SECONDS = 0.01
BATCHES = 60
WARM = 10


def main(*, quick: bool) -> None:
    planning(1 if quick else 11)
    idle(1 if quick else 300)
    floor(1 if quick else 6, WARM + 2 if quick else BATCHES)


def planning(rounds: int) -> None:
    """Times the planning of 1,000 queues; the cluster runs in this process too, so the CPU is that of both sides."""
    with EmbeddedCluster(brokers=10) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("many", queues=100)
        between = fill_twice(cluster.nameserver)
        connection = ConnectionOptions(name_server=cluster.nameserver)
        for name, times_of in STARTS.items():
            values = {"startingTimestamp": between, "endingTimestamp": FUTURE}
            options = read_source({"topic": "many"} | {option: values[option] for option in times_of})
            times = []
            for _ in range(rounds):
                wall, cpu = time.perf_counter(), time.process_time()
                plan_batch(consumer_of(connection, options), options)
                times.append((time.perf_counter() - wall, time.process_time() - cpu))
            print(f"planning 1,000 queues on 10 brokers, {name:22} {_spread(times, 's')}", flush=True)
        worker.close()


def fill_twice(nameserver: str) -> str:
    """Puts two messages into every queue, and returns a time between them."""
    with Producer("setup", nameserver=nameserver) as producer, PullConsumer("setup", nameserver=nameserver) as consumer:
        queues = consumer.message_queues("many")
        for queue in queues:
            producer.send_batch([Message("many", b"x")], queue=queue)
        time.sleep(PAUSE_SECONDS)
        between = str(int(time.time() * 1000))
        time.sleep(PAUSE_SECONDS)
        for queue in queues:
            producer.send_batch([Message("many", b"x")], queue=queue)
    return between


def idle(triggers: int) -> None:
    """Times the idle triggers of a stream of 1,000 queues on two brokers, as Spark's process for it takes them.

    They follow one another as with the default trigger: the reader itself waits in between. Offsets pass as text.
    """
    with boot_our_cluster() as cluster:
        with Admin(nameserver=cluster.nameserver.address) as admin:
            admin.create_topic("many", queues=500)
        reader = RocketMQStreamReader(
            ConnectionOptions(name_server=cluster.nameserver.address),
            read_source({"topic": "many", "startingOffsets": "earliest"}),
            source_schema(StructType([StructField("body", BinaryType())])),
        )
        start, limit = json.dumps(reader.initialOffset()), reader.getDefaultReadLimit()
        assert trigger(reader, start, limit) == start
        times = []
        began, cpu_began = time.perf_counter(), time.process_time()
        for _ in range(triggers):
            wall, cpu = time.perf_counter(), time.process_time()
            assert trigger(reader, start, limit) == start
            times.append(((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000))
        share = (time.process_time() - cpu_began) / (time.perf_counter() - began)
        print(f"an idle stream of 1,000 queues, each trigger            {_spread(times, 'ms')}")
        print(f"    its process all the time: {share:.2%} of a core", flush=True)
        worker.close()


def trigger(reader: RocketMQStreamReader, start: str, limit: ReadLimit) -> str:
    """Returns the end, as text; Spark also asks for the ends of all queues."""
    end = json.dumps(reader.latestOffset(json.loads(start), limit))
    json.dumps(reader.reportLatestOffset())
    return end


def floor(pairs: int, batches: int) -> None:
    """Times micro-batches of one row into the sink `noop`, in milliseconds, ours beside a source that makes them."""
    found = Pairs()
    with spark_session() as spark, boot_our_cluster(("broker-a",)) as cluster:
        spark.dataSource.register(ReadyTable)
        nameserver = cluster.nameserver.address
        with Admin(nameserver=nameserver) as admin, Producer("setup", nameserver=nameserver) as producer:
            admin.create_topic("floor", queues=1)
            queue = MessageQueue("floor", "broker-a", 0)
            producer.send_batch([Message("floor", b"x", tags="a", keys="k") for _ in range(batches)], queue=queue)
        wait_readable(nameserver, "floor", batches)
        source = spark.readStream.format("rocketmq").option("nameServer", nameserver).option("topic", "floor")
        ours = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1).load()
        one_row = {"rows": batches, "batches": batches, "batchRows": 1, "bodyBytes": 1}
        ready = spark.readStream.format(ReadyTable.name()).options(**one_row).load()
        for frame in (ours, ready) if pairs > 1 else ():
            batch_ms(frame, batches)
        for _ in range(pairs):
            found.run(lambda: batch_ms(ours, batches), lambda: batch_ms(ready, batches))
    ratios = found.ratios
    print(
        f"a micro-batch of one row: {statistics.median(found.ours):.0f} ms, the ready-made source "
        f"{statistics.median(found.theirs):.0f} ms, ratio {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} pairs)",
        flush=True,
    )


def batch_ms(frame: DataFrame, batches: int) -> float:
    """Returns the median milliseconds of all batches but the first few."""
    with tempfile.TemporaryDirectory() as directory:
        writer = frame.writeStream.format("noop").option("checkpointLocation", directory)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    times = [one.durationMs["triggerExecution"] for one in query.recentProgress if one.numInputRows]
    assert len(times) == batches
    return statistics.median(times[WARM:])


def _spread(times: list[tuple[float, float]], unit: str) -> str:
    walls, cpus = zip(*times, strict=True)
    digits = 2 if unit == "s" else 1
    return (
        f"{statistics.median(walls):.{digits}f} {unit} ({min(walls):.{digits}f} to {max(walls):.{digits}f}), "
        f"processor {statistics.median(cpus):.{digits}f} {unit} ({min(cpus):.{digits}f} to {max(cpus):.{digits}f})"
    )
