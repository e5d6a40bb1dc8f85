"""A stream's reader used as Spark uses it, in this process: its offsets pass as JSON text, its parts as pickles."""

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import EmbeddedCluster, Producer, PullConsumer
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.stream.stream_reader import RocketMQStreamReader

SCHEMA = StructType(
    [StructField("brokerName", StringType()), StructField("queueOffset", LongType()), StructField("body", StringType())]
)
Offset = dict[str, Any]


class Query:
    """A query's offsets and rows, as a checkpoint keeps them; `restart` gives it a new reader, as after a failure."""

    def __init__(self, cluster: EmbeddedCluster | str, **options: Any) -> None:
        """Starts at no offset; `cluster` may be a NameServer's address."""
        nameserver = cluster if isinstance(cluster, str) else cluster.nameserver
        self._connection = ConnectionOptions(name_server=nameserver, poll_name_server_interval=0.001)
        self._options = {name: str(value) for name, value in options.items()}
        self.offset: Offset | None = None
        self.rows: list[tuple[str, int, str]] = []
        self.restart()

    def restart(self, **options: Any) -> None:
        self._options |= {name: str(value) for name, value in options.items()}
        self.reader = RocketMQStreamReader(self._connection, read_source(self._options), source_schema(SCHEMA))

    def start(self) -> Offset:
        return self.offset if self.offset is not None else text(self.reader.initialOffset())

    def plan(self, *, everything: bool = False) -> Offset:
        """Returns the end of a batch, requested as Spark does since 4.2; `test_older_streams.py` has the older way."""
        datasource = pytest.importorskip(
            "pyspark.sql.streaming.datasource", reason="before PySpark 4.2 it has no limit"
        )
        limit = datasource.ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
        return text(self.reader.latestOffset(self.start(), limit))

    def batch(self, *, everything: bool = False) -> list[str]:
        """Runs one batch and returns its bodies in order."""
        start, end = self.start(), self.plan(everything=everything)
        return self.run(start, end)

    def run(self, start: Offset, end: Offset) -> list[str]:
        bodies = []
        for partition in pickle.loads(pickle.dumps(self.reader.partitions(start, end))):
            for batch in pickle.loads(pickle.dumps(self.reader)).read(partition):
                for row in batch.to_pylist():
                    self.rows.append((row["brokerName"], row["queueOffset"], row["body"]))
                    bodies.append(row["body"])
        self.offset = end
        return bodies


def text(offset: Offset) -> Offset:
    """Returns the offset after a round trip through Spark's JSON."""
    return json.loads(json.dumps(offset))  # type: ignore[no-any-return]


def send(producer: Producer, cluster: EmbeddedCluster, topic: str, first: int, last: int, broker: str = "a") -> None:
    queue = MessageQueue(topic, f"broker-{broker}", 0)
    sent = producer.send_batch(
        [Message(topic, f"{n}".encode(), tags=f"t{n % 2}") for n in range(first, last)], queue=queue
    )
    wait_end(cluster, queue, sent[-1].queue_offset + 1)


def wait_end(cluster: EmbeddedCluster, queue: MessageQueue, end: int) -> None:
    with PullConsumer("setup", nameserver=cluster.nameserver) as consumer:
        while consumer.max_offset(queue) < end:
            pass


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last)]
