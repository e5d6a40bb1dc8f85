"""Run by the Python of one Spark: the jobs of one connector, each at a line of JSON on its input.

    python spark_jobs.py kafka|rocketmq|registered ADDRESS [NAME=VALUE...]

NAME=VALUE are settings of the session. A line is `{"job": NAME, ...}` with the arguments of that method of `Jobs`; the
answer, a line of JSON on the output that the process began with, is the method's result, or `{"error": TEXT}`. The end
of the input ends the session. It imports nothing but PySpark and the columns of the rows, as the two connectors need
different releases of it; ours is imported to register it. The `case` of a job is one of `user_rows`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.streaming.query import StreamingQuery

sys.path.append(str(Path(__file__).parents[2]))  # of the driver alone, which is run by path
from benchmarks.support.spark_jobs import messages
from benchmarks.support.user_rows import CASES

# Rows of a small batch, and how many first batches of a query are left out: they load code and compile.
SMALL_BATCH = 10
WARM_BATCHES = 5
STREAM_SECONDS = 120.0

Answer = dict[str, float]


class Kafka:
    """The options and columns of Spark's Kafka connector, and Kafka's own administration."""

    name = "kafka"
    ends: Mapping[str, str] = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    columns: Mapping[str, str] = {"body": "value", "keys": "key", "properties": "headers"}
    # A task requests the ends of its partition behind its own fetch, which waits at the end of the partition: by
    # default 500 ms, of which 1,000 partitions make four minutes.
    many_queues: Mapping[str, str] = {"kafka.fetch.max.wait.ms": "10"}

    def __init__(self, spark: SparkSession, address: str) -> None:
        self._spark = spark
        self._address = address

    def source(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._address, "subscribe": topic, "includeHeaders": "true"}

    def sink(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._address, "topic": topic}

    def body_only(self, topic: str) -> DataFrame:
        """Returns the body alone. Spark then builds no other column."""
        return self._spark.read.format("kafka").options(**self.source(topic), **self.ends).load().select("value")

    def properties(self, column: Column) -> Column:
        return F.transform(
            F.map_entries(column), lambda pair: F.struct(pair["key"], pair["value"].cast("binary").alias("value"))
        )

    def scattered(self, numbers: DataFrame) -> DataFrame:
        return numbers.select(F.lit(b"x").alias("value"), F.col("id").cast("int").alias("partition"))

    def create(self, topic: str, partitions: int) -> None:
        jvm = self._jvm()
        optional, admin = jvm.java.util.Optional, self._admin()
        new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, optional.of(partitions), optional.empty())
        admin.createTopics(jvm.java.util.Collections.singletonList(new)).all().get()
        admin.close()

    def delete(self, topic: str) -> None:
        admin = self._admin()
        admin.deleteTopics(self._jvm().java.util.Collections.singletonList(topic)).all().get()
        admin.close()

    def _admin(self) -> Any:
        jvm = self._jvm()
        settings = jvm.java.util.Collections.singletonMap("bootstrap.servers", self._address)
        return jvm.org.apache.kafka.clients.admin.Admin.create(settings)

    def _jvm(self) -> Any:
        return self._spark._jvm


class RocketMQ:
    """The options and columns of ours. The benchmark makes its topics itself."""

    name = "rocketmq"
    ends: Mapping[str, str] = {}
    columns: Mapping[str, str] = {"body": "body", "keys": "keys", "tags": "tags", "properties": "properties"}
    many_queues: Mapping[str, str] = {}

    def __init__(self, spark: SparkSession, address: str) -> None:
        self._spark = spark
        self._address = address

    def source(self, topic: str) -> dict[str, str]:
        return {"nameServer": self._address, "topic": topic}

    def sink(self, topic: str) -> dict[str, str]:
        return {"nameServer": self._address, "topic": topic}

    def body_only(self, topic: str) -> DataFrame:
        return self._spark.read.format("rocketmq").schema("body binary").options(**self.source(topic)).load()

    def properties(self, column: Column) -> Column:
        return column

    def scattered(self, numbers: DataFrame) -> DataFrame:
        return numbers.select(
            F.lit(b"x").alias("body"), F.lit("broker-a").alias("brokerName"), F.col("id").cast("int").alias("queueId")
        )


class Registered(RocketMQ):
    """Ours, registered by the driver. Otherwise Spark finds it."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        from pyrmq_spark import RocketMQDataSource

        super().__init__(spark, address)
        spark.dataSource.register(RocketMQDataSource)


CONNECTORS: dict[str, type[Kafka] | type[RocketMQ]] = {"kafka": Kafka, "rocketmq": RocketMQ, "registered": Registered}


class Jobs:
    """The jobs of one session. A result's `seconds` are those of the job alone."""

    def __init__(self, spark: SparkSession, connector: Kafka | RocketMQ) -> None:
        self._spark = spark
        self._connector = connector

    def create(self, topic: str, queues: int) -> Answer:
        assert isinstance(self._connector, Kafka)
        self._connector.create(topic, queues)
        return {}

    def delete(self, topic: str) -> Answer:
        assert isinstance(self._connector, Kafka)
        self._connector.delete(topic)
        return {}

    def make(self, rows: int, case: str, partitions: int) -> Answer:
        return timed(self.frame(rows, case, partitions))

    def write(self, topic: str, rows: int, case: str, partitions: int) -> Answer:
        frame = self.frame(rows, case, partitions)
        began = time.perf_counter()
        frame.write.format(self._connector.name).options(**self._connector.sink(topic)).mode("append").save()
        return {"seconds": time.perf_counter() - began}

    def scatter(self, topic: str, rows: int) -> Answer:
        frame = self._connector.scattered(self._spark.range(0, rows, 1, 4))
        frame.write.format(self._connector.name).options(**self._connector.sink(topic)).mode("append").save()
        return {}

    def read(self, topic: str) -> Answer:
        return timed(self._all(topic))

    def read_body(self, topic: str) -> Answer:
        return timed(self._connector.body_only(topic))

    def count(self, topic: str) -> Answer:
        began = time.perf_counter()
        rows = self._all(topic, **self._connector.many_queues).count()
        return {"seconds": time.perf_counter() - began, "rows": rows}

    def available_now(self, topic: str) -> Answer:
        with tempfile.TemporaryDirectory() as directory:
            began = time.perf_counter()
            writer = self._stream(topic).writeStream.format("noop").option("checkpointLocation", directory)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            seconds = time.perf_counter() - began
        return {"seconds": seconds, "rows": sum(progress.numInputRows for progress in query.recentProgress)}

    def small_reads(self, topic: str, batches: int) -> Answer:
        """Reads a topic of that many small batches one by one, into the sink `noop`."""
        frame = self._stream(topic, maxOffsetsPerTrigger=str(SMALL_BATCH))
        return batch_times(frame, "noop", {}, batches)

    def small_writes(self, topic: str, batches: int) -> Answer:
        """Writes small batches of Spark's `rate-micro-batch` source."""
        rates = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", SMALL_BATCH).load()
        frame = rates.select(
            F.col("value").cast("string").cast("binary").alias(self._connector.columns["body"]),
            F.lit("key").alias(self._connector.columns["keys"]),
        )
        return batch_times(frame, self._connector.name, self._connector.sink(topic), batches)

    def frame(self, rows: int, case: str, partitions: int) -> DataFrame:
        """Returns the case's rows with the names that the sink gives its columns. Kafka has none for tags."""
        frame, names = messages(self._spark, CASES[case], rows, partitions), self._connector.columns
        columns = {name: F.col(name) for name in frame.columns if name in names}
        if "properties" in columns:
            columns["properties"] = self._connector.properties(columns["properties"])
        return frame.select(*(column.alias(names[name]) for name, column in columns.items()))

    def _all(self, topic: str, **more: str) -> DataFrame:
        connector = self._connector
        reader = self._spark.read.format(connector.name).options(**connector.source(topic), **connector.ends)
        return reader.options(**more).load()

    def _stream(self, topic: str, **more: str) -> DataFrame:
        reader = self._spark.readStream.format(self._connector.name).options(**self._connector.source(topic))
        return reader.options(startingOffsets="earliest", **more).load()


def timed(frame: DataFrame) -> Answer:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return {"seconds": time.perf_counter() - began}


def batch_times(frame: DataFrame, sink: str, options: Mapping[str, str], batches: int) -> Answer:
    """Returns the median seconds of a small batch, of its part `addBatch`, and the least and most of all."""
    with tempfile.TemporaryDirectory() as directory:
        writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", directory)
        query = writer.trigger(processingTime="0 seconds").start()
        wait_for(query, batches)
        query.stop()
    kept = [progress.durationMs for progress in query.recentProgress if progress.numInputRows][WARM_BATCHES:]
    all_of_it = [durations["triggerExecution"] / 1000 for durations in kept]
    return {
        "seconds": statistics.median(all_of_it),
        "add_batch": statistics.median(durations["addBatch"] / 1000 for durations in kept),
        "least": min(all_of_it),
        "most": max(all_of_it),
    }


def wait_for(query: StreamingQuery, batches: int) -> None:
    """Waits until the query has done so many batches. Raises the error that ended it, or `TimeoutError`."""
    deadline = time.monotonic() + STREAM_SECONDS
    while (last := query.lastProgress) is None or last.batchId < batches - 1:
        if query.awaitTermination(1):  # seconds; raises its error
            raise RuntimeError("the query ended by itself")
        if time.monotonic() > deadline:
            query.stop()
            raise TimeoutError(f"{batches} small batches took longer than {STREAM_SECONDS:g} s")


def answer(jobs: Jobs, line: str) -> dict[str, Any]:
    request = json.loads(line)
    try:
        result: Answer = getattr(jobs, request.pop("job"))(**request)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:2000]}
    return dict(result)


def session(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("side by side")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(name: str, address: str, settings: Mapping[str, str]) -> None:
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark's own lines on the standard output must not mix with the answers
    spark = session(settings)
    jobs = Jobs(spark, CONNECTORS[name](spark, address))
    print(json.dumps({"version": spark.version}), file=output, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(jobs, line)), file=output, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], dict(setting.split("=", 1) for setting in sys.argv[3:]))
