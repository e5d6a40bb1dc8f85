"""Real brokers for roads that are compared: each on a fresh store, warmed first; a quick run has one for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Final, Self

from pyspark.sql import SparkSession

from benchmarks.support import raw
from benchmarks.support.spark_jobs import QUEUES, read_frame, write_frame
from pyrmq_core.blocking import Admin
from tests.support.apache import boot_cluster

BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(256 << 20),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
WARM: Final = "warm"
WARM_ROWS: Final = 50_000
WARM_BYTES: Final = 40_000_000
# A raw batch has 1,000 messages, and a broker takes 4 MiB.
LARGEST_RAW_BODY: Final = 1024


@dataclass(frozen=True, slots=True)
class Sitting:
    """What a road gets to work with; its topics are empty."""

    spark: SparkSession
    nameserver: str
    address: str
    rows: int
    body_bytes: int
    plain: str
    batched: str

    def readable(self, topic: str) -> float:
        """Seconds until all of the topic is readable."""
        began = perf_counter()
        with raw.Line(self.address) as line:
            raw.wait_readable(line, topic, QUEUES, self.rows)
        return perf_counter() - began


class Brokers:
    """Boots them; with `shared` one for everything, until the end and with the first one's settings."""

    def __init__(self, spark: SparkSession, *, shared: bool) -> None:
        self._spark = spark
        self._shared = shared
        self._stack = ExitStack()
        self._running: tuple[str, str] | None = None
        self._sittings = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextmanager
    def sitting(self, rows: int, body_bytes: int, settings: Mapping[str, str] = BROKER_SETTINGS) -> Iterator[Sitting]:
        """For one road."""
        with ExitStack() as own:
            running = self._running
            if running is None:
                stack = self._stack if self._shared else own
                cluster = stack.enter_context(boot_cluster("5.4.0", ("broker-a",), broker_settings=settings))
                running = cluster.nameserver.address, cluster.brokers["broker-a"].address
            self._sittings += 1
            plain, batched = f"plain-{self._sittings}", f"batched-{self._sittings}"
            at = Sitting(self._spark, *running, rows, body_bytes, plain, batched)
            with Admin(nameserver=at.nameserver) as admin:
                admin.create_topic(plain, queues=QUEUES)
                admin.create_topic(batched, queues=QUEUES, batch=True)
            if self._running is None:
                warm(at)
            if self._shared:
                self._running = running
            yield at


def warm(at: Sitting) -> None:
    with Admin(nameserver=at.nameserver) as admin:
        admin.create_topic(WARM, queues=QUEUES)
    raw.write(at.address, WARM, QUEUES, WARM_ROWS, min(at.body_bytes, LARGEST_RAW_BODY))
    raw.read(at.address, WARM, QUEUES)
    write_frame(at.spark, at.nameserver, WARM, min(20_000, WARM_BYTES // at.body_bytes), at.body_bytes, QUEUES)
    read_frame(at.spark, at.nameserver, WARM)
