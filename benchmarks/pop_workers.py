"""1,000 workers that pop from a topic of 8 queues, beside 8 push consumers, on our own broker.

    python -m benchmarks pop_workers [--quick]

The broker is a process of its own, and all consumers are in this one, each with a client of its own. The topics are
filled behind the start of the consumers. A handler only counts. The ratio is that of pop's rate to push's, by wall time
and by the processor time of both processes for one message, which is the firmer one where others use the machine.
`fairness` is the number of messages of the busiest worker to that of the least busy. The broker's memory is read at a
tenth of the messages and at the end. A quick run has 200 workers.

The last lines are of Java's consumers on a broker of RocketMQ 5.4.0: 8 members with 20 threads each, which push, pop,
pop, push.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TypeAlias

import trio

from benchmarks.support.java_clients import RELEASE, java_output
from benchmarks.support.processes import figures_of, times_of
from pyrmq_core import Admin, ConsumeFromWhere, Message, MessageExt, PopConsumer, Producer, PushConsumer, RocketMQError
from pyrmq_core.protocol.requests.pop.assignments import RequestMode, SetRequestMode
from tests.support.apache import ApacheCluster, ask, boot_cluster
from tests.support.our_cluster import boot_our_cluster

QUEUES, BROKER = 8, "broker-a"
WORKERS, MEMBERS, THREADS = 1000, 8, 20
MESSAGES, FILL, BODY_BYTES = 400_000, 1000, 100
PATIENT_SECONDS, TRIES = 60.0, 5

# Starts a consumer within a stack, and returns a function that consumes until it is cancelled.
Start: TypeAlias = Callable[[str, int, Callable[[], None], AsyncExitStack], Awaitable[Callable[[], Awaitable[None]]]]


def main(*, quick: bool) -> None:
    with boot_our_cluster((BROKER,)) as cluster:
        pid = cluster.brokers[BROKER].process.pid
        assert pid is not None
        workers, messages = (WORKERS // 5, MESSAGES // 20) if quick else (WORKERS, MESSAGES)
        trio.run(compare, cluster.nameserver.address, pid, workers, messages)
    with boot_cluster(RELEASE, (BROKER,)) as apache:
        rates = [
            java_rate(apache, number, pops, messages // 2) for number, pops in enumerate((False, True, True, False))
        ]
    walls, processors = ([rate[number] for rate in rates] for number in (0, 1))
    print(
        f"Java's pop to its push: {(walls[1] + walls[2]) / (walls[0] + walls[3]):.2f} by wall time, "
        f"{(processors[0] + processors[3]) / (processors[1] + processors[2]):.2f} by processor time"
    )


def java_rate(cluster: ApacheCluster, number: int, pops: bool, messages: int) -> tuple[float, float]:
    """Returns the messages a second, and the microseconds of processor for each, of both processes."""
    broker, nameserver, topic = cluster.brokers[BROKER], cluster.nameserver.address, f"java{number}"
    pid = broker.process.pid
    assert pid is not None
    trio.run(create, nameserver, topic)
    trio.run(fill, nameserver, topic, messages)
    if pops:
        assert ask(broker.address, SetRequestMode(topic, topic, RequestMode.POP).to_command()).code == 0
    _, spent = processor_seconds(pid)
    output = java_output("PopRates", nameserver, topic, topic, str(pops).lower(), MEMBERS, THREADS, messages)
    rate, client, all_came = output.split()[-3:]
    assert all_came == "true", output
    at_broker = (processor_seconds(pid)[1] - spent) / messages * 1e6
    print(
        f"Java {'pop' if pops else 'push'}: {float(rate):8,.0f} /s, processor for a message {client} us at the client "
        f"and {at_broker:.1f} us at the broker",
        flush=True,
    )
    return float(rate), float(client) + at_broker


async def create(nameserver: str, topic: str) -> None:
    async with Admin(nameserver=nameserver) as admin:
        await admin.create_topic(topic, queues=QUEUES)


async def fill(nameserver: str, topic: str, messages: int) -> None:
    async with Producer("fill", nameserver=nameserver) as producer:
        for _ in range(messages // FILL):
            await producer.send_batch([Message(topic, b"x" * BODY_BYTES) for _ in range(FILL)])


async def compare(nameserver: str, pid: int, workers: int, messages: int) -> None:
    push = await consume("push", start_push, MEMBERS, nameserver, pid, messages)
    pop = await consume("pop", start_pop, workers, nameserver, pid, messages)
    print(f"pop's rate to push's: {push[0] / pop[0]:.2f} by wall time, {push[1] / pop[1]:.2f} by processor time")


async def consume(
    kind: str, start: Start, workers: int, nameserver: str, pid: int, messages: int
) -> tuple[float, float]:
    """Returns the seconds and the processor seconds in which the workers handled all messages."""
    counts: Counter[int] = Counter()
    tenth, done = trio.Event(), trio.Event()
    left = messages

    def handled(number: int) -> None:
        nonlocal left
        counts[number] += 1
        left -= 1
        if left == messages - messages // 10:
            tenth.set()
        elif not left:
            done.set()

    async with AsyncExitStack() as stack:
        await create(nameserver, kind)
        runs = [await start(nameserver, number, partial(handled, number), stack) for number in range(workers)]
        await fill(nameserver, kind, messages)
        async with trio.open_nursery() as nursery:
            began, spent = time.perf_counter(), processor_seconds(pid)
            for run in runs:
                nursery.start_soon(run)
            await tenth.wait()
            memory = figures_of(pid)["resident MiB"]
            await done.wait()
            seconds = time.perf_counter() - began
            ours, broker = (end - start for end, start in zip(processor_seconds(pid), spent, strict=True))
            nursery.cancel_scope.cancel()
        least = min(counts[number] for number in range(workers))
        print(
            f"{kind:4} {workers:5} workers: {messages / seconds:8,.0f} /s, processor for a message "
            f"{ours / messages * 1e6:.1f} us here and {broker / messages * 1e6:.1f} us at the broker, "
            f"fairness {max(counts.values())}:{least}, the broker's memory {memory:.0f} to "
            f"{figures_of(pid)['resident MiB']:.0f} MB",
            flush=True,
        )
    return seconds, ours + broker


async def start_push(
    nameserver: str, number: int, handled: Callable[[], None], stack: AsyncExitStack
) -> Callable[[], Awaitable[None]]:
    consumer = await stack.enter_async_context(
        PushConsumer(
            "push",
            nameserver=nameserver,
            instance_name=str(number),
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        )
    )

    async def handle(messages: Sequence[MessageExt]) -> None:
        for _ in messages:
            handled()

    await consumer.subscribe("push")
    return partial(consumer.run, handle)


async def start_pop(
    nameserver: str, number: int, handled: Callable[[], None], stack: AsyncExitStack
) -> Callable[[], Awaitable[None]]:
    consumer = await stack.enter_async_context(
        PopConsumer("pop", nameserver=nameserver, instance_name=str(number), timeout=PATIENT_SECONDS)
    )

    async def handle(_: MessageExt) -> None:
        handled()

    # All first connections and look-ups at once would take a process of this size longer than their time.
    for _ in range(TRIES):
        with suppress(RocketMQError):
            await consumer.receive("pop", wait=0)
            break
    return partial(consumer.run, "pop", handle)


def processor_seconds(pid: int) -> tuple[float, float]:
    """Returns the seconds of processor that this process and the broker have had."""
    return time.process_time(), times_of(pid)[1]
