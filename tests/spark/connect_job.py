"""A client of Spark Connect that uses all of the connector, and prints as JSON what it saw.

python -m tests.spark.connect_job NAMESERVER ROWS DIRECTORY       starts the server, and is only its client
"""

import json
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, Producer
from pyrmq_spark import LagListener, OffsetPublisher, commit_offsets, lag, topics
from pyrmq_spark.cdc import canal
from tests.spark.shipped_job import session
from tests.support.soaking import wait_until
from tests.support.source_table import DDL, SourceTable, canal_messages
from tests.support.spark import NOT_CONNECTED, read, wait_readable, write
from tests.support.table_jobs import final_table, rows_in_source

SECONDS = 600  # the end of a query that hangs
MORE = 10
ATTEMPTS = 20
COLUMNS = "body string, tags string, keys string, properties map<string,string>, queueId int, queueOffset bigint"


class Progresses(StreamingQueryListener):
    """Counts the rows of the progresses that the server reports."""

    def __init__(self) -> None:
        self.rows = 0

    def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802 - Spark's name
    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self.rows += event.progress.numInputRows

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802 - Spark's name


def both_ways(spark: SparkSession, nameserver: str, rows: int) -> bool:
    """Writes rows with every kind of column, and returns whether a read has the same."""
    properties = "map('n', cast(id as string)) as properties"
    frame = spark.range(0, rows, 1, 3).selectExpr(
        "concat('row ', id) as body", "'paid' as tags", "'k' as keys", properties
    )
    write(frame, nameserver, topic="written")
    wait_readable(nameserver, "written", rows)
    rows_found = read(spark, nameserver, COLUMNS, topic="written", minPartitions=4).select(*frame.columns)
    return sorted(rows_found.collect(), key=str) == sorted(frame.collect(), key=str)


def finished(writer: DataStreamWriter) -> StreamingQuery:
    """Runs a query to its end, and again if Spark did not wait for its Python process."""
    for _ in range(ATTEMPTS):
        query = writer.start()
        try:
            assert query.awaitTermination(SECONDS)
            return query
        except StreamingQueryException as error:
            if not NOT_CONNECTED.search(str(error)):
                raise
    raise AssertionError(f"not connected in {ATTEMPTS} attempts")


def streamed(spark: SparkSession, nameserver: str, rows: int, directory: Path) -> dict[str, Any]:
    """Streams from topic to topic in several batches, over a restart; returns its rows, progress and lag."""
    listeners = Progresses(), LagListener(), OffsetPublisher("listened", nameServer=nameserver)
    for listener in listeners:
        spark.streams.addListener(listener)
    source = {"nameServer": nameserver, "topic": "written", "startingOffsets": "earliest", "consumerGroup": "streaming"}
    queries: list[StreamingQuery] = []
    for limit in (rows // 4, rows):
        frame = spark.readStream.format("rocketmq").options(**source, maxOffsetsPerTrigger=str(limit)).load()
        writer = frame.drop("brokerName", "queueId").writeStream.format("rocketmq").queryName("copy")
        writer = writer.options(nameServer=nameserver, topic="copied", checkpointLocation=str(directory / "checkpoint"))
        queries.append(finished(writer.trigger(availableNow=True)))
        more = [Message("written", b"more", tags="paid") for _ in range(MORE)]
        with Producer("more", nameserver=nameserver) as producer:
            producer.send_batch(more)
    after = rows + MORE
    told = partial(consumed, nameserver, "listened")
    wait_until(lambda: told() >= after, SECONDS, lambda: f"listeners published {told()} rows, not {after}")
    copied = read(spark, nameserver, "body string", topic="copied")
    published = commit_offsets(queries[-1], "published", nameServer=nameserver)
    for listener in listeners:
        spark.streams.removeListener(listener)
    lags = lag(queries[-1])
    return {
        "copied": copied.count(),
        "batches": [len(query.recentProgress) for query in queries],
        "read": [sum(each.numInputRows for each in query.recentProgress) for query in queries],
        "offset": sum(each.offset for each in lags),
        "behind": sum(each.behind for each in lags),
        "published": sum(published.values()),
        "listened": listeners[0].rows,
        "page": "spark_rocketmq" in listeners[1].prometheus_text(),
        "groups": {group: consumed(nameserver, group) for group in ("streaming", "published", "listened")},
    }


def consumed(nameserver: str, group: str) -> int:
    """Returns the sum of the offsets that brokers have of a group."""
    with Admin(nameserver=nameserver) as admin:
        return sum(row.consumer_offset for row in admin.groups.progress(group, topic="written").queues)


def errors(spark: SparkSession, nameserver: str, directory: Path) -> dict[str, str]:
    """Returns the text of an error of each kind, as the client has it."""

    def of_stream() -> None:
        frame = spark.readStream.format("rocketmq").options(nameServer=nameserver, topic="missing").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(directory / "of-errors"))
        finished(writer.trigger(availableNow=True))

    attempts = {
        "option": lambda: read(spark, nameserver, topic="written", minPartition=3).collect(),
        "topic": lambda: read(spark, nameserver, topic="missing").collect(),
        "column": lambda: write(spark.sql("SELECT 'x' AS body, 1 AS colour"), nameserver, topic="written"),
        "row": lambda: write(spark.sql("SELECT cast(null AS string) AS body"), nameserver, topic="written"),
        "stream": of_stream,
    }
    texts = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except PySparkException as error:
            texts[name] = str(error)
    return texts


def tables(spark: SparkSession, nameserver: str) -> dict[str, Any]:
    """Makes a database again from the view of its topic, and looks at another view before and after it is made anew."""
    source = SourceTable()
    source.live(60, seed=3)
    sent = [Message("binlog", body.encode()) for body in canal_messages(source.changes())]
    with Producer("canal", nameserver=nameserver) as producer:
        queue = producer.message_queues("binlog")[0]
        for message in sent:
            producer.send(message, queue=queue)
        producer.send(Message("orders", b'{"id": 1, "price": "2.50"}'))
        wait_readable(nameserver, "binlog", len(sent))
        wait_readable(nameserver, "orders", 1)
        views = topics(spark, nameServer=nameserver, pattern="binlog|orders")
        changes = canal(spark.table(views["binlog"]), DDL, key="id", table="shop.customers")
        counts = [spark.sql(f"SELECT id, price FROM {views['orders']}").count()]
        producer.send(Message("orders", b'{"id": 2, "price": "3.50"}'))
        wait_readable(nameserver, "orders", 2)
    views = topics(spark, nameServer=nameserver, pattern="binlog|orders")
    counts.append(spark.sql(f"SELECT id, price FROM {views['orders']}").count())
    return {"database": final_table(changes) == rows_in_source(source) != [], "views": counts}


def main(nameserver: str, rows: int, directory: Path) -> None:
    logging.basicConfig(level=logging.WARNING)
    with Admin(nameserver=nameserver) as admin:
        for topic in ("written", "copied", "orders"):
            admin.create_topic(topic, queues=2)
        admin.create_topic("binlog", queues=1)
    spark = session("connect")
    try:
        seen = {
            "equal": both_ways(spark, nameserver, rows),
            "errors": errors(spark, nameserver, directory),
            "stream": streamed(spark, nameserver, rows, directory),
            "tables": tables(spark, nameserver),
        }
        print(json.dumps(seen))  # noqa: T201
    finally:  # a client with a listener does not end without it
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
