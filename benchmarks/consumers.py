"""Push and lite pull consumers beside Java's, on one real Apache RocketMQ 5.4.0 broker: messages a second.

    python -m benchmarks consumers [--quick]

A topic of four queues is filled before with rows of `user_rows`. Each run reads all of it, a push consumer in a group
of its own, with a handler that only counts. `warm` are the rates of the second half, when Java's machine has compiled
its code. Lite pull reads the topic twice and counts the second time. Each row is a pair, run A B B A. The verdict is
the median of the pairs' ratios with its spread. `CPU us` is the processor time of this process for one message: the
firmer figure where others use the machine.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import trio

from benchmarks.support.brokers import PATIENT, one_broker
from benchmarks.support.java_clients import TRIES, figure_in, java_output
from benchmarks.support.java_clients import lite_pull as java_lite_pull
from benchmarks.support.pairs import Clock, Figure, heading, pairs_of, table_line
from benchmarks.support.user_rows import CASES, Case
from pyrmq_core import ConsumeFromWhere, LitePullConsumer, MessageExt, PushConsumer
from pyrmq_core.blocking import Admin, Producer

QUEUES = 4
MESSAGES = {"100": 1_000_000, "1024": 300_000, "100-equal": 1_000_000}
PAIRS = 5
FILL_ROWS = 50_000
BATCHES = (1, 32)
FIRST = ConsumeFromWhere.FIRST_OFFSET
GROUPS = itertools.count(1)


def main(*, quick: bool) -> None:
    share, pairs = (20, 1) if quick else (1, PAIRS)
    with one_broker({"mappedFileSizeCommitLog": str(1 << 28), **PATIENT}) as cluster:
        nameserver = cluster.nameserver.address
        print(heading("ours, /s", "Java, /s"))
        for name, count in MESSAGES.items():
            arguments = nameserver, f"consumed-{name}", count // share
            fill(*arguments, CASES[name])
            for batch in BATCHES:
                both = pairs_of(pairs, partial(push, *arguments, batch), partial(java_push, *arguments, batch))
                for index, part in enumerate(("", ", warm")):
                    figures = [(ours[index], theirs[index]) for ours, theirs in both]
                    print(table_line(f"push, rows {name}, batches of {batch}{part}", figures), flush=True)
            figures = pairs_of(pairs, partial(lite_pull, *arguments), partial(java_lite_pull, *arguments))
            print(table_line(f"lite pull, rows {name}", figures), flush=True)


def fill(nameserver: str, topic: str, count: int, case: Case) -> None:
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=QUEUES)
    rows = pa.Table.from_batches([case.record_batch(FILL_ROWS)])
    with Producer("filling", nameserver=nameserver) as producer:
        for begin in range(0, count, FILL_ROWS):
            producer.send_arrow(rows.slice(0, min(FILL_ROWS, count - begin)), topic=topic, timeout=60)


def push(nameserver: str, topic: str, count: int, batch: int) -> tuple[Figure, Figure]:
    """Returns the figures of our push consumer with an async handler: of all messages, and of the second half."""
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
    cpu_us = (time.process_time() - spent) / count * 1e6
    ended = time.perf_counter()
    return Figure(count / (ended - began), cpu_us), Figure(count / 2 / (ended - half))


def java_push(nameserver: str, topic: str, count: int, batch: int) -> tuple[Figure, Figure]:
    output = java_output("PushRates", nameserver, topic, count, batch, tries=TRIES)
    return Figure(figure_in(output, "rate")), Figure(figure_in(output, "warm"))


def lite_pull(nameserver: str, topic: str, count: int) -> Figure:
    """Returns the rate of our lite pull consumer that reads the topic for the second time."""

    async def read(consumer: LitePullConsumer) -> Figure:
        queues = await consumer.message_queues(topic)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        seen, clock = 0, Clock()
        while seen < count:
            seen += len(await consumer.poll(30))
        return clock.figure(count)

    async def consume() -> Figure:
        async with LitePullConsumer("ours-lite", nameserver=nameserver, auto_commit=False) as consumer:
            await read(consumer)
            return await read(consumer)

    return trio.run(consume)
