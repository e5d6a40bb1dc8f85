"""Kills a query and the brokers it reads from, at random, while two topics are written to; then counts every row."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from pyrmq_core import Message, MessageQueue, RocketMQError
from pyrmq_core.blocking import Admin, Producer, PullConsumer
from tests.support.jvm import JavaProcess
from tests.support.our_cluster import OurCluster
from tests.support.standalone import job_environment

ROOT = Path(__file__).parent.parent.parent
TOPICS = ("orders", "audit")
QUEUES = 1
QUERY, BROKER, PYTHONS = "query", "broker", "pythons"
BATCH_SECONDS = 180.0
Position = tuple[str, str, int, int]


class KilledQuery:
    """The job as a process with a session of its own: every process it has started is killed with it."""

    def __init__(self, nameserver: str, directory: Path) -> None:
        self._nameserver = nameserver
        self._directory = directory
        self._job: JavaProcess | None = None
        self._session = 0

    def start(self) -> JavaProcess:
        command = [sys.executable, "-m", "tests.spark.killed_job", self._nameserver, ",".join(TOPICS)]
        command.append(str(self._directory))
        self._job = JavaProcess("the query", command, self._directory / "job.log", job_environment(ROOT))
        self._job.start()
        self._session = self._job.pid or 0
        return self._job

    def kill(self, words: str = "") -> None:
        """Kills Python, its JVM and the JVM's Pythons: daemons of Spark leave the process group, but not the session.

        With `words`, kills only the processes whose command line contains them.
        """
        assert self._job is not None
        for pid in _processes_of(self._session, words):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not words:
            self._job.kill()

    def finish(self) -> None:
        """Returns when all rows that arrived are written."""
        assert self._job is not None
        (self._directory / "finish").touch()
        assert self._job.wait_for_exit(BATCH_SECONDS) == 0, self._job.log_tail(40)

    def batches(self) -> int:
        """Returns the number of completed batches in the checkpoint."""
        done = (self._directory / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(file.name) for file in done if file.name.isdecimal()), default=-1) + 1

    def wait_batch(self, after: int) -> None:
        """Waits until one more batch is done; fails with the job's last lines when it ends by itself."""
        assert self._job is not None
        self._job.wait_until(lambda: self.batches() > after, BATCH_SECONDS)


def _processes_of(session: int, words: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if int(fields[3]) == session and words in command:
                yield int(entry.name)


@dataclass(slots=True)
class Sent:
    """Numbers that brokers acknowledged; a failed send may be stored all the same."""

    acknowledged: set[int] = field(default_factory=set)
    failures: int = 0


@contextmanager
def sending(nameserver: str) -> Iterator[Sent]:
    """Sends numbered messages to both topics in turn, as long as the block runs."""
    sent, stop = Sent(), threading.Event()

    def run() -> None:
        number = 0
        with Producer("setup", nameserver=nameserver) as producer:
            while not stop.wait(0.4):
                numbers = range(number, number + 20)
                topic = TOPICS[number // 20 % len(TOPICS)]
                number += 20
                try:
                    producer.send_batch([Message(topic, f"{value}".encode()) for value in numbers])
                    sent.acknowledged.update(numbers)
                except RocketMQError:
                    sent.failures += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


def stored(nameserver: str) -> dict[Position, str]:
    """Returns every message of the topics by its position."""
    bodies: dict[Position, str] = {}
    with PullConsumer("audit", nameserver=nameserver) as consumer:
        queues = [queue for topic in TOPICS for queue in consumer.message_queues(topic)]
        for queue, bounds in consumer.offset_bounds(queues).items():
            bodies |= _stored_in(consumer, queue, bounds.start, bounds.end)
    return bodies


def _stored_in(consumer: PullConsumer, queue: MessageQueue, offset: int, end: int) -> dict[Position, str]:
    bodies: dict[Position, str] = {}
    while offset < end:
        pulled = consumer.pull(queue, offset)
        for message in pulled.messages:
            bodies[queue.topic, queue.broker_name, queue.queue_id, message.queue_offset] = message.body.decode()
        assert pulled.next_offset > offset, pulled
        offset = pulled.next_offset
    return bodies


def arrived(directory: Path) -> Counter[tuple[Position, str]]:
    """Returns every row that the query wrote, and how often."""
    rows = pq.read_table(directory / "found").to_pylist()
    return Counter(((row["topic"], row["brokerName"], row["queueId"], row["queueOffset"]), row["body"]) for row in rows)


def killed_at_random(cluster: OurCluster, directory: Path, kills: int, draw: random.Random) -> Sent:
    """Kills the query, brokers and the query's Pythons in any order; then waits until all rows have arrived."""
    nameserver = cluster.nameserver.address
    with Admin(nameserver=nameserver) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, queues=QUEUES)
    victims = [(QUERY, BROKER, PYTHONS, BROKER)[number % 4] for number in range(kills)]
    draw.shuffle(victims)
    query = KilledQuery(nameserver, directory)
    try:
        with sending(nameserver) as sent:
            query.start()
            for victim in victims:
                _kill_one(cluster, query, victim, draw)
        query.finish()
    finally:
        query.kill()
    return sent


def _kill_one(cluster: OurCluster, query: KilledQuery, victim: str, draw: random.Random) -> None:
    """Kills one victim: mostly after another batch and a moment more, and a query sometimes while it starts."""
    if draw.random() < 0.8:
        query.wait_batch(query.batches())
    time.sleep(draw.uniform(0.0, 0.6))
    if victim == QUERY:
        query.kill()
        query.start()
    elif victim == PYTHONS:
        query.kill("-m pyspark.")
    else:
        broker = draw.choice(sorted(cluster.brokers))
        cluster.brokers[broker].kill()
        time.sleep(draw.uniform(0.0, 2.0))
        cluster.brokers[broker].start()
