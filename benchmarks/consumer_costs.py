"""The costs of a push consumer while little happens, and of what it keeps: latency, idle processor time, memory.

    python -m benchmarks consumer_costs [--quick]

All on one real Apache RocketMQ 5.4.0 broker. *Latency*: microseconds from `send` in another process to the handler, one
message each 20 ms, beside Java's push consumer, runs A B B A. *Idle*: the share of a core that a consumer of 100 empty
queues takes. *Memory*: the resident set after each tenth of the messages, with the default flow control.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio

from benchmarks.consumers import FIRST, QUEUES, fill
from benchmarks.support.brokers import PATIENT, one_broker
from pyrmq_core import MessageExt, PushConsumer
from pyrmq_core.blocking import Admin
from tests.support.apache import ApacheCluster
from tests.support.java_programs import run_java
from tests.support.waiting import until

LATENCY = Path(__file__).parent / "java" / "PushLatency.java"
PAUSE = 0.02
IDLE_QUEUES = 100
MIB = 1 << 20


def main(*, quick: bool) -> None:
    with one_broker({"mappedFileSizeCommitLog": str(1 << 28), **PATIENT}) as cluster:
        compare_latencies(cluster, pairs=1 if quick else 5, count=100 if quick else 500)
        show_idle(cluster.nameserver.address, seconds=5 if quick else 60)
        show_memory(cluster.nameserver.address, 200_000 if quick else 10_000_000)


def compare_latencies(cluster: ApacheCluster, *, pairs: int, count: int) -> None:
    nameserver, topic = cluster.nameserver.address, "paced"
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=QUEUES)
    ours, theirs = list[tuple[int, int]](), list[tuple[int, int]]()
    with paced_sender(nameserver, topic):
        for number in range(pairs):
            for side in ("ours", "java") if number % 2 == 0 else ("java", "ours"):
                if side == "ours":
                    ours.append(trio.run(our_latency, nameserver, topic, count))
                else:
                    theirs.append(java_latency(cluster, topic, count))
    for name, index in (("p50", 0), ("p99", 1)):
        our, their = [one[index] for one in ours], [one[index] for one in theirs]
        ratios = [one / other for one, other in zip(our, their, strict=True)]
        print(
            f"latency {name}, us: ours {statistics.median(our):,.0f}, Java {statistics.median(their):,.0f}, ratio "
            f"{statistics.median(ratios):.2f}  ({min(ratios):.2f} to {max(ratios):.2f}, {pairs} pairs)",
            flush=True,
        )


@contextmanager
def paced_sender(nameserver: str, topic: str) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.support.paced_sender", nameserver, topic, str(PAUSE)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.kill()


async def our_latency(nameserver: str, topic: str, count: int) -> tuple[int, int]:
    """Returns median and 99th percentile, in microseconds, of `count` messages after as many that are left out."""
    taken: list[int] = []
    started = time.time_ns() // 1000
    async with PushConsumer(f"latency-{os.getpid()}", nameserver=nameserver) as consumer:
        await consumer.subscribe(topic)

        async def handler(messages: Sequence[MessageExt]) -> None:
            if (sent := int(messages[0].body)) >= started:
                taken.append(time.time_ns() // 1000 - sent)
            if len(taken) >= 2 * count:
                await consumer.stop()

        await consumer.run(handler)
    kept = sorted(taken[count : 2 * count])
    return kept[count // 2], kept[count * 99 // 100]


def java_latency(cluster: ApacheCluster, topic: str, count: int) -> tuple[int, int]:
    arguments = (cluster.nameserver.address, topic, str(count))
    words = run_java("5.4.0", LATENCY, *arguments, timeout=300, java_options=()).split("p50 ")[1].split()
    return int(words[0]), int(words[2])


def show_idle(nameserver: str, *, seconds: float) -> None:
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic("idle", queues=IDLE_QUEUES)

    async def consume() -> float:
        async with PushConsumer("idlers", nameserver=nameserver) as consumer, trio.open_nursery() as nursery:
            await consumer.subscribe("idle")

            async def handler(messages: Sequence[MessageExt]) -> None:
                raise AssertionError("nothing is sent")

            nursery.start_soon(consumer.run, handler)
            await until(lambda: len(consumer.assigned_queues) == IDLE_QUEUES, 60)
            await trio.sleep(5)
            began = time.process_time()
            await trio.sleep(seconds)
            spent = time.process_time() - began
            await consumer.stop()
        return spent / seconds

    print(f"idle with {IDLE_QUEUES} queues: {trio.run(consume):.2%} of a core over {seconds} s", flush=True)


def show_memory(nameserver: str, count: int) -> None:
    fill(nameserver, "many", 100, count)

    async def consume() -> list[float]:
        resident: list[float] = []
        seen = 0
        async with PushConsumer("keepers", nameserver=nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe("many")

            async def handler(messages: Sequence[MessageExt]) -> None:
                nonlocal seen
                seen += len(messages)
                if seen >= count * (len(resident) + 1) // 10:
                    resident.append(resident_mib())
                if seen >= count:
                    await consumer.stop()

            await consumer.run(handler)
        return resident

    sizes = trio.run(consume)
    print(f"memory over {count:,} messages, MiB at each tenth: {' '.join(f'{size:.0f}' for size in sizes)}", flush=True)


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB
