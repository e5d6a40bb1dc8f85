"""One sitting beside Kafka: all sessions and servers alive at once, every row measured on one side after another."""

from __future__ import annotations

import compileall
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks.support import raw
from benchmarks.support.brokers import BROKER_SETTINGS
from benchmarks.support.kafka_server import KafkaServer, boot_kafka
from benchmarks.support.kafka_spark import connector_jars, python_with_spark
from benchmarks.support.session_process import JobFailed, SparkProcess, cpu_of, family_cpu, machine_cpu, open_session
from benchmarks.support.side_by_side import Better, Row, Run
from benchmarks.support.spark_jobs import QUEUES, ROOT
from pyrmq_core.blocking import Admin
from pyrmq_core.columnar.decoding.compiled import SETTING
from pyrmq_spark import session_settings
from tests.support.apache import ApacheBroker, ApacheCluster, boot_cluster
from tests.support.native_build import SITE, built_site

KAFKA: Final = "kafka"
PLAIN: Final = "plain"
BATCH: Final = "batch"
UNIX: Final = "unix"
UNIX_BATCH: Final = "unix-batch"
NATIVE: Final = "native"
NATIVE_BATCH: Final = "native-batch"
BROKER: Final = "broker-a"
# The environment of sessions that decode in Python, whatever is installed.
PURE: Final = {SETTING: "0"}
PACKAGES: Final = ("pyrmq_core", "pyrmq_spark", "benchmarks")


@dataclass(frozen=True, slots=True)
class Side:
    """The session that runs a side, and the side that stores its topics."""

    session: str
    topics: str


SIDES: Final[Mapping[str, Side]] = {
    KAFKA: Side(KAFKA, KAFKA),
    PLAIN: Side(PLAIN, PLAIN),
    BATCH: Side(PLAIN, BATCH),
    UNIX: Side(UNIX, PLAIN),
    UNIX_BATCH: Side(UNIX, BATCH),
    NATIVE: Side(NATIVE, PLAIN),
    NATIVE_BATCH: Side(NATIVE, BATCH),
}

Job = Callable[[str, SparkProcess], Mapping[str, float]]


@dataclass(slots=True)
class KafkaSitting:
    """The sessions and servers that are alive, and the rows found so far by name."""

    sessions: Mapping[str, SparkProcess]
    kafka: KafkaServer
    cluster: ApacheCluster
    rows: dict[str, Row] = field(default_factory=dict)
    topics: int = 0

    @property
    def broker(self) -> ApacheBroker:
        return self.cluster.brokers[BROKER]

    def session(self, side: str) -> SparkProcess:
        return self.sessions[SIDES[side].session]

    def new_topic(self, side: str, queues: int = QUEUES) -> str:
        self.topics += 1
        topic = f"{side}-{self.topics}"
        if side == KAFKA:
            self.session(side).run("create", topic=topic, queues=queues)
        else:
            with Admin(nameserver=self.cluster.nameserver.address) as admin:
                admin.create_topic(topic, queues=queues, batch=side == BATCH)
        return topic

    def filled(self, side: str, rows: int, case: str) -> str:
        topic = self.new_topic(side)
        self.write(side, topic, rows, case)
        return topic

    def write(self, side: str, topic: str, rows: int, case: str) -> Mapping[str, float]:
        """Writes rows. A write of ours ends when all of it is readable, as one of Kafka does by itself."""
        figures = self.session(side).run("write", topic=topic, rows=rows, case=case, partitions=QUEUES)
        began = time.perf_counter()
        self.wait_readable(side, topic, rows)
        return {**figures, "seconds": figures["seconds"] + time.perf_counter() - began}

    def wait_readable(self, side: str, topic: str, rows: int, queues: int = QUEUES) -> None:
        if side != KAFKA:
            with raw.Line(self.broker.address) as line:
                raw.wait_readable(line, topic, queues, rows)

    def drop(self, topics: Mapping[str, str]) -> None:
        """Frees the memory of Kafka's topics. That of ours is freed by `fresh_store`."""
        if KAFKA in topics:
            self.session(KAFKA).run("delete", topic=topics[KAFKA])

    def fresh_store(self) -> None:
        """Gives the broker of ours an empty store, on the same port."""
        self.broker.kill()
        shutil.rmtree(self.broker.store)
        self.broker.restart()

    def compare(
        self,
        name: str,
        pair: int,
        sides: Sequence[str],
        rows: int,
        job: Job,
        *,
        better: Better = Better.MORE_ROWS_A_SECOND,
    ) -> None:
        """Runs every side once, in the reverse order in every second pair. A side that fails goes without this run."""
        row = self.rows.setdefault(name, Row(name, better))
        for side in sides[:: -1 if pair % 2 else 1]:
            try:
                run = self._measured(side, rows, job)
            except JobFailed as error:
                print(f"   {name:14} {side:16} failed: {error}", flush=True)
                continue
            row.add(side, pair, run)
            print(f"   {name:14} {side:16} {run.seconds:7.3f} s, other load {run.others:.2f} cores", flush=True)

    def _measured(self, side: str, rows: int, job: Job) -> Run:
        """Runs a job and returns its time, as the job itself measures it, with the processor time of every process."""
        session = self.session(side)
        broker = self.kafka.pid if side == KAFKA else self.broker.process.pid
        assert broker is not None
        before, broker_before = session.cpu(), cpu_of(broker)
        began, family, busy = time.perf_counter(), family_cpu(), machine_cpu()
        figures = dict(job(side, session))
        others = (machine_cpu() - busy - (family_cpu() - family)) / (time.perf_counter() - began)
        after = session.cpu()
        return Run(
            seconds=figures.pop("seconds"),
            rows=rows,
            spark_cpu=after.all - before.all,
            python_cpu=after.workers - before.workers,
            broker_cpu=cpu_of(broker) - broker_before,
            others=max(0.0, others),
            detail=figures,
        )


def small_job(side: str) -> str:
    """Returns the side whose small jobs stand for this one's: they take as long on either kind of topic."""
    settings = SIDES[side]
    wanted = replace(settings, topics=PLAIN) if settings.topics == BATCH else settings
    return next(name for name, other in SIDES.items() if other == wanted)


def compile_packages() -> None:
    """Compiles the checkout, as an installer does: where Python keeps no bytecode, each new query would do so anew."""
    for package in PACKAGES:
        if not compileall.compile_dir(ROOT / package, quiet=1):
            raise RuntimeError(f"not everything in {package} could be compiled")


@contextmanager
def kafka_sitting(
    heaps: tuple[str, str], *, unix: bool, native: bool, broker_settings: Mapping[str, str]
) -> Iterator[KafkaSitting]:
    """Yields a sitting. With `unix` there is a second session of ours, as the quick start has it, and with `native` a
    third one, which is like the second and has the compiled decoder. The others decode in Python.

    `heaps` are those of a session without settings and of one with them. Raises `ApacheUnavailable` for what cannot be
    fetched, and `JavaFailed` or `JobFailed` for what does not start.
    """
    heap, unix_heap = heaps
    compile_packages()
    their_python = python_with_spark()
    jars = ":".join(map(str, connector_jars(their_python)))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(boot_kafka())
        cluster = stack.enter_context(
            boot_cluster("5.4.0", (BROKER,), broker_settings={**BROKER_SETTINGS, **broker_settings})
        )
        nameserver, python = cluster.nameserver.address, Path(sys.executable)

        def opened(
            connector: str,
            address: str,
            python: Path,
            heap: str,
            settings: Mapping[str, str],
            environment: Mapping[str, str] = PURE,
        ) -> SparkProcess:
            return stack.enter_context(
                open_session(
                    connector, address, python, directory, heap=heap, settings=settings, environment=environment
                )
            )

        sessions = {
            KAFKA: opened("kafka", kafka.address, their_python, heap, {"spark.driver.extraClassPath": jars}),
            PLAIN: opened("rocketmq", nameserver, python, heap, {}),
        }
        settings = {name: str(value) for name, value in session_settings().items()}
        if unix:
            sessions[UNIX] = opened("registered", nameserver, python, unix_heap, settings)
        if native:
            if built_site() is None:
                raise JobFailed("there is no compiled decoder: run make native")
            sessions[NATIVE] = opened("registered", nameserver, python, unix_heap, settings, {"PYTHONPATH": str(SITE)})
        yield KafkaSitting(sessions, kafka, cluster)
