"""Real brokers for paths that are compared: each on a fresh store, warmed first. A quick run shares one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.support import raw
from benchmarks.support.spark_jobs import QUEUES, read_frame, write_frame
from benchmarks.support.user_rows import SMALL, Case
from pyrmq_core.blocking import Admin
from tests.support.apache import ApacheCluster, boot_cluster

BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(256 << 20),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
# On a shared machine requests wait longer; the broker shall not refuse them for that.
PATIENT: Final[Mapping[str, str]] = {"waitTimeMillsInSendQueue": "30000"}
WARM: Final = "warm"
WARM_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Sitting:
    """The session, broker, topics and sizes with which one path is measured. The topics are empty."""

    spark: SparkSession
    nameserver: str
    address: str
    rows: int
    case: Case
    plain: str
    batched: str

    def readable(self, topic: str) -> float:
        """Waits until the whole topic is readable, and returns the seconds."""
        began = perf_counter()
        with raw.Line(self.address) as line:
            raw.wait_readable(line, topic, QUEUES, self.rows)
        return perf_counter() - began


_shared: list[ApacheCluster] = []
_topics = count(1)


@contextmanager
def one_broker(settings: Mapping[str, str]) -> Iterator[ApacheCluster]:
    """Yields Apache RocketMQ 5.4.0 with one broker on an empty store, or that of `shared_broker` as it is."""
    if _shared:
        yield _shared[-1]
        return
    with boot_cluster("5.4.0", ("broker-a",), broker_settings=settings) as cluster:
        yield cluster


@contextmanager
def shared_broker(spark: SparkSession) -> Iterator[None]:
    """Shares one warmed broker among all measurements within: booting takes longer than a small run.

    A call within another boots none.
    """
    if _shared:
        yield
        return
    with one_broker({**BROKER_SETTINGS, **PATIENT}) as cluster:
        warm(spark, cluster, SMALL)
        _shared.append(cluster)
        try:
            yield
        finally:
            _shared.pop()


@contextmanager
def sitting(spark: SparkSession, rows: int, case: Case) -> Iterator[Sitting]:
    with one_broker(BROKER_SETTINGS) as cluster:
        if cluster not in _shared:
            warm(spark, cluster, case)
        nameserver, address = cluster.nameserver.address, cluster.brokers["broker-a"].address
        plain, batched = new_topic(nameserver), new_topic(nameserver, batch=True)
        yield Sitting(spark, nameserver, address, rows, case, plain, batched)


def new_topic(nameserver: str, *, batch: bool = False) -> str:
    """Creates one more topic, for messages or for batches, and returns its name."""
    topic = f"topic-{next(_topics)}"
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=QUEUES, batch=batch)
    return topic


def warm(spark: SparkSession, cluster: ApacheCluster, case: Case) -> None:
    nameserver, address = cluster.nameserver.address, cluster.brokers["broker-a"].address
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(WARM, queues=QUEUES)
    raw.write(address, WARM, QUEUES, WARM_ROWS, case)
    raw.read(address, WARM, QUEUES)
    write_frame(spark, nameserver, WARM, 20_000, case)
    read_frame(spark, nameserver, WARM)
