"""Push and lite pull consumers beside Java's, on one real Apache RocketMQ 5.4.0 broker: messages a second.

    python -m benchmarks consumers [--quick]

A topic of four queues is filled before with rows of `user_rows`. Each run reads all of it, a push consumer in a group
of its own, with a handler that only counts. `warm` are the rates of the second half, when Java's machine has compiled
its code. Lite pull reads the topic twice and counts the second time. Each row is a pair, run A B B A. The verdict is
the median of the pairs' ratios with its spread. `CPU` is the processor time of this process for one message: the firmer
figure where others use the machine.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import trio

from benchmarks.support.brokers import PATIENT, one_broker
from benchmarks.support.pairs import Pairs
from benchmarks.support.user_rows import CASES, Case
from pyrmq_core import ConsumeFromWhere, LitePullConsumer, MessageExt, PushConsumer
from pyrmq_core.blocking import Admin, Producer
from tests.support.apache import ApacheCluster
from tests.support.java_programs import run_java
from tests.support.jvm import JavaFailed

HERE = Path(__file__).parent
QUEUES = 4
MESSAGES = {"100": 1_000_000, "1024": 300_000, "100-equal": 1_000_000}
PAIRS = 5
FILL_ROWS = 50_000
BATCHES = (1, 32)
TRIES = 4
FIRST = ConsumeFromWhere.FIRST_OFFSET
HEADING = f"{'':44} {'ours, /s':>12} {'Java, /s':>12} {'ratio':>7}"
GROUPS = itertools.count(1)


def main(*, quick: bool) -> None:
    with one_broker({"mappedFileSizeCommitLog": str(1 << 28), **PATIENT}) as cluster:
        print(HEADING)
        for name, count in MESSAGES.items():
            topic, messages = f"consumed-{name}", count // (20 if quick else 1)
            fill(cluster.nameserver.address, topic, CASES[name], messages)
            for batch in BATCHES:
                compare(cluster, topic, name, messages, batch, pairs=1 if quick else PAIRS)
            measured = Pairs()
            for _ in range(1 if quick else PAIRS):
                measured.run(
                    partial(lite_pull, cluster.nameserver.address, topic, messages),
                    partial(java_lite_pull, cluster, topic, messages),
                )
            print(measured.line(f"lite pull, rows {name}"), flush=True)


def fill(nameserver: str, topic: str, case: Case, count: int) -> None:
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=QUEUES)
    rows = pa.Table.from_batches([case.record_batch(FILL_ROWS)])
    with Producer("filling", nameserver=nameserver) as producer:
        for begin in range(0, count, FILL_ROWS):
            producer.send_arrow(rows.slice(0, min(FILL_ROWS, count - begin)), topic=topic, timeout=60)


def compare(cluster: ApacheCluster, topic: str, rows: str, count: int, batch: int, *, pairs: int) -> None:
    whole, warm, cpu = Pairs(), Pairs(), list[float]()
    nameserver = cluster.nameserver.address

    def ours() -> tuple[float, float]:
        return push(nameserver, topic, count, batch, cpu)

    def theirs() -> tuple[float, float]:
        return java_push(cluster, topic, count, batch)

    for number in range(pairs):
        both = [(0.0, 0.0), (0.0, 0.0)]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            both[side] = (ours, theirs)[side]()
        for index, measured in enumerate((whole, warm)):
            measured.ours.append(both[0][index])
            measured.theirs.append(both[1][index])
    name = f"push, rows {rows}, batches of {batch}"
    print(f"{whole.line(name)}  CPU {statistics.median(cpu):.2f} us a message")
    print(warm.line(f"{name}, warm"), flush=True)


def push(nameserver: str, topic: str, count: int, batch: int, cpu: list[float]) -> tuple[float, float]:
    """Returns the rates of our push consumer with an async handler: of all messages, and of the second half."""
    began, half, seen = 0.0, 0.0, 0

    async def consume() -> None:
        settings = {"consume_from_where": FIRST, "consume_message_batch_max_size": batch}
        group = f"ours-{os.getpid()}-{next(GROUPS)}"
        async with PushConsumer(group, nameserver=nameserver, **settings) as consumer:  # type: ignore[arg-type]
            await consumer.subscribe(topic)

            async def handler(messages: Sequence[MessageExt]) -> None:
                nonlocal began, half, seen
                began = began or time.perf_counter()
                seen += len(messages)
                if seen >= count // 2 and not half:
                    half = time.perf_counter()
                if seen >= count:
                    await consumer.stop()

            await consumer.run(handler)

    spent = time.process_time()
    trio.run(consume)
    cpu.append((time.process_time() - spent) / count * 1e6)
    ended = time.perf_counter()
    return count / (ended - began), count / 2 / (ended - half)


def java_push(cluster: ApacheCluster, topic: str, count: int, batch: int) -> tuple[float, float]:
    program = HERE / "java" / "PushRates.java"
    arguments = (cluster.nameserver.address, topic, str(count), str(batch))
    output = java_output(program, *arguments)
    whole, warm = (float(output.split(word)[1].split()[0]) for word in ("rate ", "warm "))
    return whole, warm


def lite_pull(nameserver: str, topic: str, count: int) -> float:
    """Returns the rate of our lite pull consumer that reads the topic for the second time."""

    async def read(consumer: LitePullConsumer) -> float:
        queues = await consumer.message_queues(topic)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        seen, began = 0, time.perf_counter()
        while seen < count:
            seen += len(await consumer.poll(30))
        return count / (time.perf_counter() - began)

    async def consume() -> float:
        async with LitePullConsumer("ours-lite", nameserver=nameserver, auto_commit=False) as consumer:
            await read(consumer)
            return await read(consumer)

    return trio.run(consume)


def java_lite_pull(cluster: ApacheCluster, topic: str, count: int) -> float:
    arguments = (cluster.nameserver.address, topic, str(count))
    output = java_output(HERE / "java" / "LitePull.java", *arguments)
    return float(output.split("rate ")[1].split()[0])


def java_output(program: Path, *arguments: str) -> str:
    """Runs a program in a machine of its own, and again if it fails, as Java's first request does at times."""
    for _ in range(TRIES - 1):
        with suppress(JavaFailed):
            return run_java("5.4.0", program, *arguments, timeout=300, java_options=())
    return run_java("5.4.0", program, *arguments, timeout=300, java_options=())
