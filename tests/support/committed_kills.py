"""Kills at named points of a committed stream and of its committed read: what counts is each number, once.

A round sends numbers, waits for a point (before or behind a look, a send, the record; behind Spark's own log) and acts
there: kills the driver, an executor's JVM, a worker, the committer, a broker; stops a worker that goes on later, when
Spark has given it up; loses or holds a frame.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from pyrmq_core import Message, MessageQueue, RocketMQError, SendFailed
from pyrmq_core.blocking import Admin, Producer, PullConsumer
from tests.support.apache import ApacheCluster
from tests.support.our_cluster import OurCluster
from tests.support.relay import LOOKS, SENDS, Point, Relay, Verdict, owner_of, relayed
from tests.support.soaking import Driver, ancestors_of, command_of, committed_rows, held, kill, stored_rows, wait_until

SECONDS = 300.0
NUMBERS_A_ROUND = 240
MANIFEST = "copies-committed"
POINTS = {
    "a look": (LOOKS, MANIFEST, 12),
    "a send": (SENDS, "copies", 12),
    "the record": (SENDS, MANIFEST, 1),
}
SPARK_LOG = "Spark's own log"
VICTIMS = ("driver", "worker", "late driver", "broker", "lost frame", "held frame")
# Executors that are processes.
LOCAL, WITH_EXECUTORS = "local[2,8]", "local-cluster[2,1,1024]"
VICTIMS_WITH_EXECUTORS = (*VICTIMS, "executor", "standstill")
STRAGGLER = "straggler"  # a worker that stands still while Spark runs its task on another host too


@dataclass(frozen=True)
class Act:
    """One fault: what it hits, and at which request of a kind, before it or behind its answer."""

    victim: str
    place: str
    number: int = 1
    is_answer: bool = False

    def __str__(self) -> str:
        if self.place == SPARK_LOG:
            return f"{self.victim} behind {self.place}"
        return f"{self.victim} {'behind' if self.is_answer else 'before'} {self.place}"


def drawn(draw: random.Random, count: int, master: str) -> Iterator[Act]:
    """Yields so many random acts."""
    for _ in range(count):
        victim = draw.choice(VICTIMS if master == LOCAL else VICTIMS_WITH_EXECUTORS)
        place = draw.choice([*POINTS, SPARK_LOG])
        if victim == "standstill" and place != "a send":
            victim = "late driver"  # Spark waits for ever for a committer that stands still
        if place == SPARK_LOG:
            if victim in ("lost frame", "held frame", "late driver"):
                victim = "driver"  # there is no frame to act at
            yield Act(victim, place)
        else:
            yield Act(victim, place, draw.randint(1, POINTS[place][2]), draw.random() < 0.5)


@dataclass
class Report:
    """The acts of a run, and how much was sent and stored."""

    acts: Counter[str] = field(default_factory=Counter)
    numbers: int = 0
    stored: int = 0
    orphans: int = 0  # files of the stream's batches that were killed before Spark's log named them

    def __str__(self) -> str:
        acts = ", ".join(f"{name} {count}" for name, count in sorted(self.acts.items()))
        repeats = f"{self.stored - self.numbers} repeats, {self.orphans} files that do not count"
        return f"{self.acts.total()} acts, {self.numbers} numbers, {repeats}: {acts}"


class Kills:
    """One run over a cluster, ours or Apache's."""

    def __init__(
        self,
        cluster: OurCluster | ApacheCluster,
        relay: Relay,
        directory: Path,
        draw: random.Random,
        *job: str,
        hosts: Sequence[int],
    ) -> None:
        self._cluster = cluster
        self._relay = relay
        self._directory = directory
        self._draw = draw
        self._driver = Driver(relay.nameserver, directory, "tests.spark.committed_job", *job, hosts=hosts)
        self._producer = Producer("setup", nameserver=cluster.nameserver.address, send_timeout=60)
        self._consumer = PullConsumer("audit", nameserver=cluster.nameserver.address)
        self._stopped: list[int] = []
        self._after: Callable[[], object] | None = None
        self.report = Report()

    def run(self, acts: Iterable[Act]) -> Report:
        """Acts, then waits for the end and checks what was read."""
        with self._producer, self._consumer:
            try:
                for act in acts:
                    self._one_round(act)
                    self.report.acts[str(act)] += 1
                    print(f"{self.report.acts.total()}: {act}", flush=True)  # noqa: T201 - the course of a long test
                self._go_on()
                (self._directory / "complete").touch()
                wait_until(self._has_ended, SECONDS, lambda: f"the streams did not end\n{self._log()}")
            finally:
                self._go_on()
                self._driver.end()
            self.report.stored = held(self._consumer, "copies") or 0
            self._check()
        return self.report

    def _one_round(self, act: Act) -> None:
        self._driver.ensure()
        if act.place == SPARK_LOG:
            before = self._batches()
            self._feed_until(lambda: self._batches() > before)
            self._act(act, 0)
        else:
            codes, topic, _ = POINTS[act.place]
            self._relay.arm(Point(codes, topic, act.number, act.is_answer), lambda port: self._act(act, port))
            self._feed_until(self._relay.reached.is_set)
        self._restart()
        self._driver.ensure()
        if self._draw.random() < 0.7:
            self._wait_for_the_rows()
            self._go_on()

    # --- Acts. They run while nothing passes through the relay.

    def _act(self, act: Act, port: int) -> Verdict:
        owner = owner_of(port, self._driver.ever()) if port else None
        workers = self._driver.workers()
        lost = Verdict.PASS if act.is_answer else Verdict.LOSE
        match act.victim:
            case "worker":
                if owner or workers:
                    kill(owner or self._draw.choice(workers))
                return lost
            case "executor":
                for pid in self._driver.executors()[:1]:
                    kill(pid)
                return lost
            case "driver":
                self._driver.kill()
                return lost
            case "standstill" if owner is not None:
                executors = [pid for pid in self._driver.executors() if pid in ancestors_of(owner)]
                self._stop(owner)
                for pid in executors:
                    kill(pid)
                return Verdict.PASS
            case "straggler":
                if owner is not None:
                    self._stop(owner, with_daemon=False)
                return Verdict.PASS
            case "late driver" | "standstill":
                if owner is not None:
                    self._stop(owner)
                self._driver.kill()
                return Verdict.HOLD
            case "broker":
                broker = self._cluster.brokers[self._draw.choice(sorted(self._cluster.brokers))]
                broker.kill()
                self._after = broker.restart
                return Verdict.PASS
            case "lost frame":
                return Verdict.LOSE
            case _:
                self._driver.kill()
                return Verdict.HOLD

    def _stop(self, pid: int, *, with_daemon: bool = True) -> None:
        """Stops a worker, and kills its daemon, which would end the worker as soon as its JVM has ended."""
        daemons = [ancestor for ancestor in ancestors_of(pid) if b"pyspark.daemon" in command_of(ancestor)]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self._stopped.append(pid)
        for daemon in daemons if with_daemon else ():
            kill(daemon)

    def _go_on(self) -> None:
        """Resumes the processes that stand still, and passes on the frames that are held."""
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped.clear()
        self._relay.release()

    # --- Progress.

    def _feed(self) -> None:
        numbers = range(self.report.numbers, self.report.numbers + NUMBERS_A_ROUND)
        queues = self._producer.message_queues("numbers")
        for index, queue in enumerate(queues):
            messages = [Message("numbers", f"{number}".encode()) for number in numbers[index :: len(queues)]]
            wait_until(partial(self._is_sent, messages, queue), SECONDS, lambda: "a broker takes no numbers")
        self.report.numbers = numbers.stop

    def _is_sent(self, messages: Sequence[Message], queue: MessageQueue) -> bool:
        """Sends them, and returns whether they are stored; starts the broker again that an act killed meanwhile."""
        try:
            self._producer.send_batch(messages, queue=queue)
        except SendFailed:
            self._restart()
            return False
        return True

    def _restart(self) -> None:
        if self._after is not None:
            self._after()
            self._after = None

    def _batches(self) -> int:
        files = (self._directory / "numbers" / "commits").glob("[0-9]*")
        return max((int(file.name) for file in files if file.name.isdecimal()), default=-1)

    def _committed(self) -> int:
        try:
            return sum(commit.rows for commit in self._consumer.read_manifest(MANIFEST).commits)
        except RocketMQError:
            return 0

    def _feed_until(self, condition: Callable[[], object]) -> None:
        """Sends numbers, again whenever all are committed, until the condition holds."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"the point is not reached\n{self._log()}"
            if self._committed() >= self.report.numbers:
                self._feed()
            self._driver.ensure()
            soon = time.monotonic() + 1
            while not condition() and time.monotonic() < soon:
                time.sleep(0.002)

    def _wait_for_the_rows(self) -> None:
        def is_committed() -> bool:
            self._driver.ensure()
            return self._committed() >= self.report.numbers

        wait_until(is_committed, SECONDS, lambda: f"{self._committed()} of {self.report.numbers} rows\n{self._log()}")

    def _has_ended(self) -> bool:
        if not self._driver.has_ended_well:
            self._driver.ensure()
        return self._driver.has_ended_well

    def _log(self) -> str:
        return self._driver.log.read_text(errors="replace")[-3000:]

    def _check(self) -> None:
        stored = stored_rows(self._consumer, "numbers")
        sent = Counter(body for rows in stored.values() for body, _ in rows)
        assert set(sent) == set(map(str, range(self.report.numbers)))
        files = written_files(self._directory / "rows")
        streamed = [body for file in files for body in pq.read_table(file).column("body").to_pylist()]
        self.report.orphans = len(list((self._directory / "rows").glob("*.parquet"))) - len(files)
        for reader, rows in (("the stream", streamed), ("a pull consumer", committed_rows(self._consumer, "copies"))):
            check_rows(reader, Counter(map(str, rows)), sent)


def written_files(directory: Path) -> list[Path]:
    """Returns the files that a stream's sink wrote, by the sink's own log.

    A driver that is killed before it writes that log leaves the files of its tasks behind; no reader of Spark's reads
    them (Spark's FileStreamSinkLog).
    """
    names = set[str]()
    for log in (directory / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:  # behind the version
            names.add(json.loads(line)["path"].rpartition("/")[2])
    return [directory / name for name in sorted(names)]


def check_rows(reader: str, rows: Counter[str], sent: Counter[str]) -> None:
    """Checks that a reader has each number once."""
    lost, repeated = sent - rows, rows - sent
    assert not lost, f"{reader}: {lost.total()} of {sent.total()} rows are lost: {sorted(lost)[:10]}"
    assert not repeated, f"{reader}: {repeated.total()} rows are repeated: {sorted(repeated)[:10]}"


def killed_at_points(
    cluster: OurCluster | ApacheCluster,
    directory: Path,
    acts: Iterable[Act],
    draw: random.Random,
    *job: str,
    hosts: Sequence[int] = (),
) -> Report:
    """Makes the topics and acts; raises AssertionError when a number is lost or repeated.

    `job` are further arguments of the job: Spark's master, and the format of the write. `hosts` are the processes of a
    standalone cluster that start its executors.
    """
    with Admin(nameserver=cluster.nameserver.address, timeout=20) as admin:
        for topic in ("numbers", "copies"):
            admin.create_topic(topic, queues=2)
        admin.create_topic(MANIFEST, queues=1, broker=min(cluster.brokers))
    brokers = [broker.address for broker in cluster.brokers.values()]
    with relayed(cluster.nameserver.address, brokers) as relay:
        report = Kills(cluster, relay, directory, draw, *job, hosts=hosts).run(acts)
    print(report, flush=True)  # noqa: T201
    return report


def seeded() -> random.Random:
    """Returns the random choices of PYRMQ_SEED, or of a new seed; prints it."""
    seed = int(os.environ.get("PYRMQ_SEED") or random.SystemRandom().getrandbits(32))
    print(f"PYRMQ_SEED={seed}", flush=True)  # noqa: T201 - what a failed run is repeated with
    return random.Random(seed)
