"""Java's popping consumers and ours in one group, on our brokers and on Apache's, while all of them are killed.

`PYRMQ_SEED` repeats the choices of a run; it prints its own seed and what it saw.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trio

from pyrmq_core import Admin, RocketMQError
from pyrmq_core.blocking import Producer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.pop.assignments import RequestMode, SetRequestMode
from tests.interop.conftest import BROKERS, cluster_or_skip
from tests.support.apache import ApacheBroker, ask
from tests.support.groups.pop_lines import JAVA, Trouble, acknowledged, delays, repeats, wait_of
from tests.support.groups.pop_workers import GROUP, INVISIBLE, MOST_WORK_SECONDS, OURS, SETTLE_SECONDS, TOPIC, Scene
from tests.support.java_programs import java_command, temporary_directory
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import OurServer, boot_our_cluster

PROGRAM = Path(__file__).parent / "java" / "PopMember.java"
MEMORY = "-Xmx96m"
KILLS = int(os.environ.get("PYRMQ_KILLS", "50"))
SECONDS = float(os.environ.get("PYRMQ_SECONDS", "240"))
MOST_LATE_SECONDS = 1.0
# A broker that answers so slowly has no processor for what is due: no promise holds on such a machine.
PROBE_SECONDS, SLOW_SECONDS = 0.25, 0.5
FORGETS_SECONDS = 15.0

Broker = OurServer | ApacheBroker

pytestmark = [pytest.mark.soak, pytest.mark.timeout(int(SECONDS + SETTLE_SECONDS) + 900)]


def test_java_and_python_pop_on_our_brokers(tmp_path: Path) -> None:
    with boot_our_cluster(BROKERS) as cluster:
        judge(cluster.nameserver.address, cluster.brokers, tmp_path)


@pytest.mark.parametrize("version", ["5.4.0", "5.5.0"])
def test_java_and_python_pop_on_apaches_brokers(version: str, tmp_path: Path) -> None:
    """These brokers revive a message some 2 s after its time.

    One that is killed goes back in its topic of revivals. In the first seconds of its next life it revives once more
    what it had revived up to 36 s before the kill, though a later delivery of it was acknowledged.
    """
    with cluster_or_skip(version) as cluster:
        judge(cluster.nameserver.address, cluster.brokers, tmp_path, forgets=FORGETS_SECONDS, most_late=math.inf)


def judge(
    nameserver: str,
    brokers: Mapping[str, Broker],
    tmp_path: Path,
    *,
    forgets: float = 0.0,
    most_late: float = MOST_LATE_SECONDS,
) -> None:
    seed = int(os.environ.get("PYRMQ_SEED", random.randrange(1_000_000)))
    draw, path = random.Random(seed), tmp_path / "lines"
    trio.run(make_group, nameserver, brokers)
    work = (str(round(INVISIBLE * 1000)), str(round(MOST_WORK_SECONDS * 1000)))

    def restart() -> None:
        broker = draw.choice(list(brokers.values()))
        broker.kill()
        broker.restart()

    with ExitStack() as stack:
        home = stack.enter_context(temporary_directory("5.4.0"))
        try:
            command = java_command("5.4.0", home, MEMORY, str(PROGRAM), nameserver, GROUP, TOPIC, str(path), *work)
        except ApacheUnavailable as reason:
            pytest.skip(str(reason))
        producer = stack.enter_context(Producer("senders", nameserver=nameserver))
        probe = stack.enter_context(Probe(brokers))
        scene = Scene(nameserver, path, draw, restart, ours=4, java=[command, command])
        done = scene.live(producer, KILLS, SECONDS)
    lines, troubles = scene.lines, scene.troubles
    late = delays(lines, [*troubles, *probe.slow])
    by_kind = {
        kind: sum(line.what == "acks" and line.worker.startswith(kind) for line in lines) for kind in (OURS, JAVA)
    }
    seconds = [row[0] for row in late] or [math.nan]
    slow = max((row[0] for row in delays(lines, troubles)), default=math.nan)
    print(  # noqa: T201 - shown when it fails, and by `make soak`
        f"seed {seed}: {len(scene.sent)} messages, {by_kind}, {len(late)} came again, {min(seconds):.3f} to "
        f"{max(seconds):.3f} s after their time, {slow:.3f} s with slow brokers; longest wait "
        f"{wait_of(lines, troubles):.1f} s, {done}"
    )
    assert sorted(scene.sent - acknowledged(lines)) == [], "lost"
    assert repeats(lines, scene.unsure, troubles, forgets) == [], ("again after an acknowledgement", troubles)
    assert all(by_kind.values()), by_kind
    assert [row for row in late if not 0 <= row[0] <= most_late] == [], ("visible early or late", troubles)


class Probe:
    """A thread that asks each broker something four times a second. `slow` has the times of answers that were slow."""

    def __init__(self, brokers: Mapping[str, Broker]) -> None:
        self.slow: list[Trouble] = []
        self._brokers, self._ended = brokers, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(name,), daemon=True) for name in brokers]

    def __enter__(self) -> Probe:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str) -> None:
        while not self._ended.wait(PROBE_SECONDS):
            began = time.time()
            with suppress(OSError, RocketMQError):
                ask(self._brokers[name].address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), timeout=10.0)
            if time.time() - began > SLOW_SECONDS:
                self.slow.append(Trouble("", began, time.time()))


async def make_group(nameserver: str, brokers: Mapping[str, Broker]) -> None:
    async with Admin(nameserver=nameserver, timeout=20) as admin:
        await admin.create_topic(TOPIC, queues=4)
    for broker in brokers.values():
        assert ask(broker.address, SetRequestMode(TOPIC, GROUP, RequestMode.POP).to_command()).code == 0
