"""Workers of one group that pop, ours and Java's, as processes that are killed and stopped with their brokers.

python -m tests.support.groups.pop_workers NAMESERVER FILE
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyrmq_core import Message, RocketMQError
from pyrmq_core.blocking import PopConsumer, PopDelivery, Producer
from tests.support.groups.pop_lines import JAVA, Line, Trouble, acknowledged, lines_of
from tests.support.jvm import JavaProcess

ROOT = Path(__file__).parent.parent.parent.parent
TOPIC, GROUP = "jobs", "workers"
# The shortest invisible time of Java's client.
INVISIBLE, MOST_WORK_SECONDS = 5.0, 1.5
SETTLE_SECONDS = 120.0
OURS = "ours"
NEVER = threading.Event()
# A stopped process writes and answers some time after it goes on.
AWAKE_SECONDS = 1.0


@dataclass(eq=False)
class Worker:
    """A process that is started as often as it is killed. Its name has its process id."""

    kind: str
    process: JavaProcess
    name: str = ""
    stopped_at: float | None = None

    def start(self) -> None:
        self.process.start()
        self.name = f"{self.kind}-{self.process.pid}"

    def stop(self) -> None:
        self.process.pause()
        self.stopped_at = time.time()

    def go_on(self) -> Trouble:
        assert self.stopped_at is not None
        self.process.resume()
        trouble = Trouble(self.name, self.stopped_at, time.time() + AWAKE_SECONDS)
        self.stopped_at = None
        return trouble


class Scene:
    """A work queue under disturbances. `restart` kills a broker, and returns when it runs again."""

    def __init__(
        self,
        nameserver: str,
        path: Path,
        draw: random.Random,
        restart: Callable[[], object],
        *,
        ours: int = 6,
        java: Sequence[Sequence[str]] = (),
    ) -> None:
        path.touch()
        self.path, self.draw, self.restart = path, draw, restart
        self.sent: set[str] = set()
        self.unsure: set[str] = set()  # perhaps stored twice, or not at all
        self.troubles: list[Trouble] = []
        command = [sys.executable, "-m", __name__, nameserver, str(path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.workers = [
            Worker(kind, JavaProcess(kind, each, path.with_name(f"{kind}-{number}.log"), environment))
            for number, (kind, each) in enumerate([*[(OURS, command)] * ours, *((JAVA, each) for each in java)])
        ]
        for worker in self.workers:
            worker.start()

    @property
    def lines(self) -> list[Line]:
        return lines_of(self.path.read_text())

    def live(self, producer: Producer, kills: int, seconds: float) -> list[str]:
        """Sends for some seconds, with a disturbance after each part. Returns what was done."""
        done = []
        try:
            for number in range(kills):
                self.send(producer, number)
                NEVER.wait(seconds / kills * self.draw.uniform(0.5, 1.5))
                done.append(self.disturb())
        finally:
            self.settle()
        return done

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
        what = self.draw.choices(["kill", "stop", "broker"], [4, 2, 1])[0]
        for worker in self.workers:
            if worker.stopped_at is not None and time.time() - worker.stopped_at > INVISIBLE + 2:
                self.troubles.append(worker.go_on())
        running = [worker for worker in self.workers if worker.stopped_at is None]
        worker = self.draw.choice(running)
        if what == "broker":
            began = time.time()
            self.restart()
            self.troubles.append(Trouble("", began, time.time()))
        elif what == "stop" and len(running) > 2:
            worker.stop()
        else:
            began = time.time()
            worker.process.kill()
            self.troubles.append(Trouble(worker.name, began, time.time()))
            worker.start()
        return what if what == "broker" else f"{what} {worker.kind}"

    def settle(self) -> None:
        """Waits until every message was acknowledged, then ends the workers."""
        self.troubles += [worker.go_on() for worker in self.workers if worker.stopped_at is not None]
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline and not self.sent <= acknowledged(self.lines):
            NEVER.wait(1)
        for worker in self.workers:
            worker.process.kill()


def work(nameserver: str, path: str) -> None:
    """Takes messages until it is killed. A line is one write, so that those of several processes do not mix."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND)

    def note(what: str, delivery: PopDelivery) -> None:
        message, receipt = delivery.message, delivery._delivery._receipt
        times = (
            receipt.pop_time_ms / 1000,
            receipt.invisible_ms / 1000,
            message.store_timestamp_ms / 1000,
            time.time(),
        )
        words = (what, message.body.decode(), message.reconsume_times, f"{OURS}-{os.getpid()}", *times)
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


if __name__ == "__main__":
    work(*sys.argv[1:])
