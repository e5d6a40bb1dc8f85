"""A Spark stream with a checkpoint that reads a topic until its process is killed, and prints how far it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import count, lit
from pyspark.sql.streaming.listener import StreamingQueryListener

from benchmarks.support.growth import MIB
from pyrmq_spark import OffsetPublisher, RocketMQDataSource, session_settings
from pyrmq_spark.stream.progress import ends_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

HEAP: Final = "1g"
# A heap that is there from the start, so that resident memory shows what grows outside of it; and little history.
SETTINGS: Final = {
    "spark.driver.memory": HEAP,
    "spark.driver.extraJavaOptions": f"-Xms{HEAP} -XX:+AlwaysPreTouch",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}
BATCH_SECONDS: Final = 4
ROWS_A_BATCH: Final = 2_000_000


class _Reporter(StreamingQueryListener):
    """Prints after each batch the rows so far, the ends of their queues together, and what the heap holds."""

    def __init__(self, spark: SparkSession) -> None:
        self._runtime: Any = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        self._rows = 0

    def report(self, end: int) -> None:
        self._runtime.gc()
        heap = (self._runtime.totalMemory() - self._runtime.freeMemory()) / MIB
        print(json.dumps({"messages": self._rows, "end": end, "heap MiB": heap}), flush=True)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = json.loads(event.progress.json)
        self._rows += progress["observedMetrics"].get("rows", {}).get("count", 0)
        self.report(sum(ends_of(progress).values()))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        pass


def stream(nameserver: str, topic: str, group: str, checkpoint: Path) -> None:
    """Counts the rows of the topic in batches, and publishes how far it is under the group, until it is killed."""
    spark = SparkSession.builder.master("local[1]").config(map={**session_settings(), **SETTINGS}).getOrCreate()
    spark.dataSource.register(RocketMQDataSource)
    reporter = _Reporter(spark)
    spark.streams.addListener(OffsetPublisher(group, nameServer=nameserver))
    spark.streams.addListener(reporter)
    rows = (
        spark.readStream.format("rocketmq")
        .schema("body binary, queueId int, queueOffset long")
        .options(nameServer=nameserver, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=ROWS_A_BATCH)
        .load()
        .observe("rows", count(lit(1)).alias("count"))
    )
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{BATCH_SECONDS} seconds")
        .start()
    )
    reporter.report(0)
    query.awaitTermination()
