"""Runs of calls: several batches that a fast handler takes in turn, on the loop and in threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeLater,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)
from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue
from pyrmq_core.client.consumer.consume.concurrently import ConcurrentService
from pyrmq_core.client.consumer.consume.consume_counts import TopicCounts
from pyrmq_core.client.consumer.consume.handler_calls import CallRun, Handler, HandlerCalls
from pyrmq_core.client.consumer.consume.hooks import ConsumerHooks
from pyrmq_core.client.consumer.consume.observers import CallObserver
from pyrmq_core.client.consumer.consume.process_queue import ProcessQueue
from pyrmq_core.testing import PASS, Command, EmbeddedCluster, Peer, RequestCode
from tests.consuming.test_process_queue import MESSAGE
from tests.support.consumer_jobs import SECONDS, fresh, made_topic, total_committed
from tests.support.waiting import until

COUNT = 600


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        yield cluster


@asynccontextmanager
async def consuming(
    cluster: EmbeddedCluster, topic: str, group: str, handler: Handler, threads: int = 2, timeout: float = 900
) -> AsyncIterator[PushConsumer]:
    """Consumes `COUNT` messages of one queue, which are there before, with two workers."""
    async with Producer("filling", nameserver=cluster.nameserver) as producer:
        await producer.send_batch([Message(topic, b"%d" % number) for number in range(COUNT)])
    async with PushConsumer(
        group,
        nameserver=cluster.nameserver,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        consume_threads=threads,
        consume_timeout=timeout,
        suspend_current_queue_time=0.01,
    ) as consumer:
        await consumer.subscribe(topic)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handler)
            yield consumer
            await consumer.stop()


async def test_a_message_that_fails_amid_a_run_comes_again_alone(cluster: EmbeddedCluster) -> None:
    """The rest of its run goes back once, though the broker takes some time to store the failed one."""
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), Counter[int]()

    async def slowly(request: Command, peer: Peer) -> Any:
        await trio.sleep(0.05)
        return PASS

    cluster.control(RequestCode.CONSUMER_SEND_MSG_BACK, slowly)

    async def handler(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            seen[int(message.body)] += 1
            if int(message.body) % 100 == 50 and message.reconsume_times == 0:
                await trio.sleep(0.003)  # ends the run
                raise ConsumeLater(1)

    async with consuming(cluster, topic, group, handler):
        await until(lambda: sum(seen.values()) == COUNT + COUNT // 100, SECONDS)
    assert seen == Counter({number: 2 if number % 100 == 50 else 1 for number in range(COUNT)})
    assert await total_committed(cluster.nameserver, group, topic) == COUNT


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_other_workers_take_the_batches_behind_a_slow_one(cluster: EmbeddedCluster, where: str) -> None:
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), set[int]()
    others, others_in_threads = trio.Event(), threading.Event()

    def is_slow(messages: Sequence[MessageExt]) -> bool:
        """Notes the messages; the slow one ends when all others are consumed."""
        seen.update(int(message.body) for message in messages)
        return int(messages[0].body) == 300

    async def on_loop(messages: Sequence[MessageExt]) -> None:
        if is_slow(messages):
            await others.wait()

    def in_thread(messages: Sequence[MessageExt]) -> None:
        if is_slow(messages):
            others_in_threads.wait(SECONDS)

    async with consuming(cluster, topic, group, on_loop if where == "loop" else in_thread):
        await until(lambda: len(seen) == COUNT, SECONDS)
        others.set()
        others_in_threads.set()
    assert await total_committed(cluster.nameserver, group, topic) == COUNT


async def test_a_run_without_a_thread_gives_its_batches_back_and_ends(cluster: EmbeddedCluster) -> None:
    """The only thread hangs in a call that timed out, so that the next run does not begin."""
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), set[int]()
    go_on = threading.Event()

    def handler(messages: Sequence[MessageExt]) -> None:
        seen.add(int(messages[0].body))
        if messages[0].body == b"300":
            go_on.wait(SECONDS)

    async with consuming(cluster, topic, group, handler, threads=1, timeout=1) as consumer:

        def is_recalled() -> bool:
            if consumer._running is None or not isinstance(consumer._running.service, ConcurrentService):
                return False
            (worker,) = consumer._running.service._workers
            return 300 in seen and worker.run is not None and worker.run.batches == []

        await until(is_recalled, SECONDS)
        go_on.set()
        await until(lambda: len(seen) == COUNT, SECONDS)
    assert await total_committed(cluster.nameserver, group, topic) == COUNT


async def test_what_was_acknowledged_before_a_cancelled_call_is_not_repeated(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), set[int]()

    async def handler(messages: Sequence[MessageExt]) -> None:
        seen.add(int(messages[0].body))
        if int(messages[0].body) == 300:
            await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with consuming(cluster, topic, group, handler):
            await until(lambda: len(seen) == COUNT, SECONDS)
            scope.cancel()
            await trio.sleep_forever()
    assert await total_committed(cluster.nameserver, group, topic) == 300


class SlowSendBack:
    """A sender of failed messages back, each of which takes longer than `consume_timeout`."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.ended = trio.Event()

    async def send_back(self, message: MessageExt, queue: MessageQueue, delay_level: int) -> bool:
        self.bodies.append(message.body)
        await trio.sleep(60)
        self.ended.set()
        return True


class CountingHook:
    calls = 0

    def consume_message_before(self, context: ConsumeContext) -> None: ...

    def consume_message_after(self, context: ConsumeContext) -> None:
        self.calls += 1


async def test_a_slow_send_back_does_not_count_as_a_slow_handler(autojump_clock: MockClock) -> None:
    """Its messages once went back twice."""

    async def handler(messages: Sequence[MessageExt]) -> None:
        raise ConsumeLater

    sender, hook, queue = SlowSendBack(), CountingHook(), ProcessQueue(MessageQueue("orders", "broker-a", 0), 0)
    observer = CallObserver(ConsumerHooks([hook]), "group", None)
    service = ConcurrentService(
        HandlerCalls(handler, 1), observer, cast(Any, sender), workers=1, batch_size=1, consume_timeout=10
    )
    assigned = AssignedQueue(queue, cast(Any, SimpleNamespace(is_held_back=False)), TopicCounts())
    queue.put([MESSAGE], 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        service.arrived(assigned)
        await sender.ended.wait()
        nursery.cancel_scope.cancel()
    assert (sender.bodies, hook.calls, assigned.counts.failed) == ([b""], 1, 1)


async def test_a_run_is_as_long_as_the_handler_is_fast() -> None:
    async def fast(messages: Sequence[MessageExt]) -> None:
        pass

    async def slow(messages: Sequence[MessageExt]) -> None:
        await trio.sleep(0.003)

    for handler, most in ((fast, 64), (slow, 1)):
        calls, run_sizes = HandlerCalls(handler, 1), set[int]()
        assert calls.batches_a_run == 1
        for _ in range(20):  # the machine may be busy for one of them
            run = CallRun([[], []])
            await calls.make_calls(run)
            run_sizes.add(calls.batches_a_run)
        assert max(run_sizes) == most
    assert len(run.outcomes) == 1  # the rest is left to other workers
    assert run.has_waiting
