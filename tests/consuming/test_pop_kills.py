"""A work queue for minutes: workers and their broker are killed, and workers stand still beyond the invisible time.

`PYRMQ_SEED` repeats the choices of a run, which logs its own seed and what it saw (`-o log_cli=true`).
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from pyrmq_core import Message, RocketMQError
from pyrmq_core.blocking import EmbeddedCluster, PopConsumer, PopDelivery, Producer

TOPIC, GROUP, BROKER = "jobs", "workers", "broker-a"
WORKERS, KILLS, SECONDS = 6, 50, 240.0
INVISIBLE, MOST_WORK_SECONDS = 4.0, 1.5
SETTLE_SECONDS = 120.0
NEVER = threading.Event()
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a worker: it begins with a message, acks it, or has acked it. `tries` counts the earlier deliveries."""

    what: str
    body: str
    tries: int
    process: str
    popped: float
    at: float


def lines_of(path: Path) -> list[Line]:
    words = [line.split() for line in path.read_text().splitlines()]
    lines = [
        Line(what, body, int(tries), process, float(popped), float(at))
        for what, body, tries, process, popped, at in words
    ]
    return sorted(lines, key=lambda line: line.at)


def work(nameserver: str, path: str) -> None:
    """Takes messages until it is killed. A line is one write, so that those of several processes do not mix."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND)

    def note(what: str, delivery: PopDelivery) -> None:
        message, popped = delivery.message, delivery._delivery._receipt.pop_time_ms / 1000
        words = (what, message.body.decode(), message.reconsume_times, os.getpid(), popped, time.time())
        os.write(log, f"{' '.join(map(str, words))}\n".encode())

    with PopConsumer(GROUP, nameserver=nameserver) as consumer:
        while True:
            try:
                deliveries = consumer.receive(TOPIC, 1, INVISIBLE, 5.0)
            except RocketMQError:
                NEVER.wait(0.2)
                continue
            for delivery in deliveries:
                note("begins", delivery)
                NEVER.wait(random.uniform(0, MOST_WORK_SECONDS))
                note("acks", delivery)  # a kill may come between the acknowledgement and the next line
                with suppress(RocketMQError):
                    delivery.ack()
                    note("acked", delivery)


class Scene:
    def __init__(self, cluster: EmbeddedCluster, path: Path, draw: random.Random) -> None:
        self.cluster, self.path, self.draw = cluster, path, draw
        self.sent: set[str] = set()
        self.unsure: set[str] = set()  # perhaps stored twice, or not at all
        self.broker_kills: list[tuple[float, float]] = []
        self.stopped: list[tuple[float, subprocess.Popen[bytes]]] = []
        self.workers = [self.start() for _ in range(WORKERS)]

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, __file__, self.cluster.nameserver, str(self.path)])

    def send(self, producer: Producer, number: int) -> None:
        for at in range(20):
            body = f"{number}-{at}"
            try:
                producer.send(Message(TOPIC, body.encode()))
            except RocketMQError:
                self.unsure.add(body)
            else:
                self.sent.add(body)

    def disturb(self) -> str:
        now, what = time.monotonic(), self.draw.choices(["kill", "stop", "broker"], [4, 2, 1])[0]
        for since, worker in list(self.stopped):
            if now - since > INVISIBLE + 2:
                self.stopped.remove((since, worker))
                worker.send_signal(signal.SIGCONT)
        running = [worker for worker in self.workers if worker not in [stopped for _, stopped in self.stopped]]
        worker = self.draw.choice(running)
        if what == "broker":
            began = time.time()
            self.cluster.kill(BROKER)
            self.cluster.start(BROKER)
            self.broker_kills.append((began, time.time()))
        elif what == "stop" and len(running) > 2:
            worker.send_signal(signal.SIGSTOP)
            self.stopped.append((now, worker))
        else:
            worker.kill()
            worker.wait()
            self.workers[self.workers.index(worker)] = self.start()
        return what

    def settle(self) -> None:
        """Waits until every message was acknowledged, then ends the workers."""
        for _, worker in self.stopped:
            worker.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline and not self.sent <= acknowledged(lines_of(self.path)):
            NEVER.wait(1)
        for worker in self.workers:
            worker.kill()
            worker.wait()


def acknowledged(lines: list[Line]) -> set[str]:
    """Returns what was acknowledged, or perhaps was, by a worker that was killed meanwhile."""
    return {line.body for line in lines if line.what in ("acks", "acked")}


def repeats(lines: list[Line], unsure: set[str]) -> list[Line]:
    """Returns the deliveries of messages that were acknowledged within their invisible time before.

    A worker that stood still may begin late with an earlier delivery, which has fewer tries.
    """
    settled: dict[str, int] = {}
    wrong = []
    for line in lines:
        if line.what == "begins" and line.tries > settled.get(line.body, line.tries) and line.body not in unsure:
            wrong.append(line)
        elif line.what == "acked" and line.at - line.popped < INVISIBLE / 2:
            settled[line.body] = line.tries
    return wrong


def latest(lines: list[Line], outages: list[tuple[float, float]]) -> float:
    """Returns by how many seconds, beyond the invisible time, a message came again while its broker ran."""
    times: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if line.what == "begins":
            times[line.body].append(line.at)
    gaps = [pair for began in times.values() for pair in pairwise(began)]
    return max(
        (
            after - before - INVISIBLE
            for before, after in gaps
            if not any(before < end and start < after for start, end in outages)
        ),
        default=0.0,
    )


@pytest.mark.soak
@pytest.mark.timeout(int(SECONDS + SETTLE_SECONDS) + 240)
def test_nothing_is_lost_by_kills_and_nothing_acknowledged_comes_again(tmp_path: Path) -> None:
    seed = int(os.environ.get("PYRMQ_SEED", random.randrange(1_000_000)))
    path = tmp_path / "lines"
    path.touch()
    with (
        EmbeddedCluster(topics={TOPIC: 4}) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
    ):
        scene = Scene(cluster, path, random.Random(seed))
        done = []
        try:
            for number in range(KILLS):
                scene.send(producer, number)
                NEVER.wait(SECONDS / KILLS * scene.draw.uniform(0.5, 1.5))
                done.append(scene.disturb())
        finally:
            scene.settle()
    lines = lines_of(path)
    late = latest(lines, scene.broker_kills)
    log.info("seed %d: %d messages, %d lines, %s, latest %.1f s", seed, len(scene.sent), len(lines), done, late)
    assert sorted(scene.sent - acknowledged(lines)) == [], f"lost, seed {seed}"
    assert repeats(lines, scene.unsure) == [], f"again after an acknowledgement, seed {seed}"


if __name__ == "__main__":
    work(*sys.argv[1:])
