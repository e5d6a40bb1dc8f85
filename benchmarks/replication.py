"""A master with its slave: ours beside a pair of Apache RocketMQ 5.4.0, each broker a process of its own.

    python -m benchmarks replication [--quick]

Batches of 1,000 messages of 100 B on one connection, four under way: the rate until the slave has the last byte, how
far it is behind when the last batch is acknowledged, and the processor time of both brokers. Single sends on an idle
pair: their median with inSyncReplicas=2 beside the one with 1, which waits for nothing. A slave that was away while the
log grew by 1 GiB: the rate at which it catches up, until it has the log and until its queues have the messages.
Every row is run A B B A; the load of the machine is printed beside the rows.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.support import raw
from benchmarks.support.brokers import BROKER_SETTINGS, PATIENT
from pyrmq_core.blocking import Admin
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.apache import ask, boot_cluster
from tests.support.apache import boot_broker as boot_java_broker
from tests.support.copies import Server
from tests.support.our_cluster import boot_our_broker, boot_our_cluster

BODY_BYTES = 100
LARGE_BODY_BYTES = 1000
QUEUES = 4
PAIRS = 5
MESSAGES = 400_000
SENDS = 1000
GIB = 1 << 30
PAUSE_SECONDS = 0.01
LOOK_SECONDS = 0.005
WAIT_SECONDS = 300.0
TOPICS = count(1)
TICKS = os.sysconf("SC_CLK_TCK")
MASTER: Final = {
    "brokerRole": "SYNC_MASTER",
    "mappedFileSizeCommitLog": str(256 << 20),
    "mappedFileSizeConsumeQueue": "6000000",
}
SLAVE: Final = {**MASTER, "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
OURS: Final = {"maxStoreBytes": str(16 << 30)}
Measured = Callable[["Pair"], tuple[float, ...]]
HEADING = f"{'':52} {'ours':>10} {'Apache':>10} {'ratio':>7}"


@dataclass(slots=True)
class Row:
    """The figures of both pairs in one row of the table, one for each run."""

    name: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def line(self) -> str:
        ratios = [our / their if their else float("nan") for our, their in zip(self.ours, self.theirs, strict=True)]
        return (
            f"{self.name:52} {statistics.median(self.ours):>10,.2f} {statistics.median(self.theirs):>10,.2f} "
            f"{statistics.median(ratios):>7.2f}  ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} pairs)"
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """A master, its slave, and the NameServer of both."""

    nameserver: str
    master: Server
    slave: Server

    def new_topic(self) -> str:
        topic = f"copied-{next(TOPICS)}"
        with Admin(nameserver=self.nameserver) as admin:
            admin.create_topic(topic, queues=QUEUES)
        return topic

    def behind(self) -> int | None:
        """Returns by how many bytes the slave is behind; None while it is not connected."""
        answer = ask(self.master.address, Command(RequestCode.GET_BROKER_HA_STATUS))
        slaves = json.loads(bytes(answer.body))["haConnectionInfo"]
        return int(slaves[0]["diff"]) if slaves else None

    def wait_copied(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while self.behind() != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the slave at {self.slave.address} is not near its master")
            time.sleep(LOOK_SECONDS)

    def wait_readable(self, topic: str, messages: int) -> None:
        with raw.Line(self.slave.address) as line:
            raw.wait_readable(line, topic, QUEUES, messages)

    def copies(self, number: int) -> None:
        body = f"inSyncReplicas={number}\n".encode()
        answer = ask(self.master.address, Command(RequestCode.UPDATE_BROKER_CONFIG, body=body))
        if answer.code:
            raise RuntimeError(f"{self.master.address} refuses a setting: {answer.remark}")


def main(*, quick: bool) -> None:
    share, turns = (20, 1) if quick else (1, PAIRS)
    with our_pair() as ours, java_pair() as theirs:
        for pair in (ours, theirs):  # Java's first messages are slow
            flow(pair, MESSAGES // 10)
        print(HEADING)
        names = (
            "batches of 100 B until the slave has them, /s",
            "  MB behind when the last one is acknowledged",
            "  processor time of the master, us a message",
            "  processor time of the slave, us a message",
        )
        table(ours, theirs, turns, names, lambda pair: flow(pair, MESSAGES // share))
        waits = (
            "single send, inSyncReplicas=1, p50, ms",
            "single send, inSyncReplicas=2, p50, ms",
            "  the second divided by the first",
        )
        table(ours, theirs, turns, waits, lambda pair: single_sends(pair, SENDS // share))
        size = GIB // share
        away = (
            f"a slave {size >> 20} MiB behind, MB/s until it has the log",
            "  MB/s until it has the queues",
            "  processor time of the slave, s a GB",
            "  processor time of the master, s a GB",
        )
        table(ours, theirs, 1 if quick else 3, away, lambda pair: catch_up(pair, size))


def table(ours: Pair, theirs: Pair, turns: int, names: tuple[str, ...], run: Measured) -> None:
    """Runs both pairs in turn, every second time in the other order, and prints the rows."""
    rows = [Row(name) for name in names]
    for turn in range(turns):
        found = {}
        for pair in (theirs, ours) if turn % 2 else (ours, theirs):
            found[pair.nameserver] = run(pair)
        for row, our, their in zip(rows, found[ours.nameserver], found[theirs.nameserver], strict=True):
            row.ours.append(our)
            row.theirs.append(their)
    for row in rows:
        print(row.line(), flush=True)
    print(f"  (load of the last minute {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores)", flush=True)


def flow(pair: Pair, messages: int) -> tuple[float, ...]:
    """Returns the rate of batches until the slave has them, its lag at their end, and both brokers' time for one."""
    topic = pair.new_topic()
    pair.wait_copied()
    before = spent(pair.master), spent(pair.slave)
    began = time.perf_counter()
    raw.write(pair.master.address, topic, QUEUES, messages, BODY_BYTES)
    left = pair.behind() or 0
    pair.wait_copied()
    seconds = time.perf_counter() - began
    pair.wait_readable(topic, messages)
    costs = [(spent(one) - was) * 1e6 / messages for one, was in zip((pair.master, pair.slave), before, strict=True)]
    return messages / seconds, left / 1e6, *costs


def single_sends(pair: Pair, sends: int) -> tuple[float, float, float]:
    """Returns the medians of a single send without a wait for the slave and with one, and their ratio."""
    topic = pair.new_topic()
    pair.wait_copied()
    medians = []
    for copies in (1, 2):
        pair.copies(copies)
        medians.append(median_ms(pair.master.address, topic, sends))
    pair.copies(1)
    return medians[0], medians[1], medians[1] / medians[0]


def median_ms(address: str, topic: str, sends: int) -> float:
    request, times = raw.single(topic, 0, BODY_BYTES), []
    with raw.Line(address) as line:
        for _ in range(sends):
            time.sleep(PAUSE_SECONDS)
            began = time.perf_counter()
            line.write(request)
            raw.acknowledged(line)
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def catch_up(pair: Pair, size: int) -> tuple[float, ...]:
    """Returns the rates of a slave that is so many bytes behind, and the processor time of both brokers for a GB."""
    topic, messages = pair.new_topic(), size // LARGE_BODY_BYTES // raw.BATCH * raw.BATCH
    pair.wait_copied()
    pair.slave.terminate()
    raw.write(pair.master.address, topic, QUEUES, messages, LARGE_BODY_BYTES)
    master_before = spent(pair.master)
    pair.slave.start()
    while (left := pair.behind()) is None:
        time.sleep(LOOK_SECONDS)
    began, slave_before = time.perf_counter(), spent(pair.slave)
    pair.wait_copied()
    copied = time.perf_counter() - began
    pair.wait_readable(topic, messages)
    readable = time.perf_counter() - began
    costs = [spent(pair.slave) - slave_before, spent(pair.master) - master_before]
    return left / 1e6 / copied, left / 1e6 / readable, *[cost * 1e9 / max(left, 1) for cost in costs]


def spent(server: Server) -> float:
    """Returns the processor time of a broker so far, in seconds."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def our_pair() -> Iterator[Pair]:
    with boot_our_cluster(["broker-a"], broker_settings={**OURS, **MASTER}) as cluster:
        nameserver, home = cluster.nameserver.address, cluster.nameserver.store.parent / "slave"
        with boot_our_broker("broker-a", nameserver, home, {**OURS, **SLAVE}) as slave:
            yield Pair(nameserver, cluster.brokers["broker-a"], slave)


@contextmanager
def java_pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        settings = {**BROKER_SETTINGS, **PATIENT}
        cluster = stack.enter_context(boot_cluster("5.4.0", ("broker-a",), broker_settings={**settings, **MASTER}))
        nameserver = cluster.nameserver.address
        slave = stack.enter_context(boot_java_broker("5.4.0", nameserver, "broker-a", settings={**settings, **SLAVE}))
        yield Pair(nameserver, cluster.brokers["broker-a"], slave)
