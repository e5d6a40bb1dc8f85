"""Consumers that pop on the embedded cluster: the jobs of every server, the other faces, and the example."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from pyrmq_core import ConsumeLater, MessageExt, aio, blocking
from pyrmq_core.testing import EmbeddedCluster
from tests.support.consumer_jobs import fresh, made_topic, send
from tests.support.pop_jobs import OrderedPopJobs, PopJobs

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "work_queue.py"


@pytest.fixture
async def nameserver() -> AsyncIterator[str]:
    async with EmbeddedCluster(settings={"enablePropertyFilter": "true"}) as cluster:
        yield cluster.nameserver


class TestOnOurCluster(PopJobs, OrderedPopJobs):
    """The jobs of every server."""


async def test_the_example_of_a_work_queue(nameserver: str) -> None:
    """Each job is done once, and the one that failed at its second try."""
    command = [sys.executable, str(EXAMPLE), nameserver]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.decode().splitlines()) == [
        f"picture-{number} try {2 if number == 3 else 1}" for number in range(10)
    ]


async def test_the_blocking_face_receives_and_runs(nameserver: str) -> None:
    topic, group = await made_topic(nameserver), fresh("workers")
    await send(nameserver, topic, ["first", "second"])
    handled: list[bytes] = []

    def work() -> None:
        with blocking.PopConsumer(group, nameserver=nameserver) as consumer:
            (first,) = consumer.receive(topic)
            with first as message:
                first.extend(30)
                handled.append(message.body)
            assert first.is_settled
            (second,) = consumer.receive(topic)
            with second:
                raise ConsumeLater(1)

            def handle(message: MessageExt) -> None:
                handled.append(message.body)
                assert message.reconsume_times == 1
                consumer.stop()

            consumer.run(topic, handle)

    with trio.fail_after(60):
        await trio.to_thread.run_sync(work)
    assert sorted(handled) == [b"first", b"second"]


async def test_the_asyncio_face_receives_and_runs(nameserver: str) -> None:
    topic, group = await made_topic(nameserver), fresh("workers")
    await send(nameserver, topic, ["first", "second"])
    handled: list[bytes] = []

    async def work() -> None:
        async with aio.PopConsumer(group, nameserver=nameserver) as consumer:
            (first,) = await consumer.receive(topic)
            async with first as message:
                await first.extend(30)
                handled.append(message.body)
            assert first.is_settled
            (second,) = await consumer.receive(topic)
            await second.give_back(0)

            async def handle(message: MessageExt) -> None:
                asyncio.get_running_loop()
                handled.append(message.body)
                assert message.reconsume_times == 1
                await consumer.stop()

            await consumer.run(topic, handle)

    with trio.fail_after(60):
        await trio.to_thread.run_sync(lambda: asyncio.run(work()))
    assert sorted(handled) == [b"first", b"second"]
