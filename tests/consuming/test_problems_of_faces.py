"""`consumer.problems` in the faces for threads and for asyncio: a group that its broker does not have is in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import trio

from pyrmq_core import Problem, aio, blocking
from pyrmq_core.loop_thread.portal import portal


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    settings = {"autoCreateSubscriptionGroup": "false"}
    with blocking.EmbeddedCluster(topics={"orders": 1}, settings=settings) as cluster:
        yield cluster.nameserver


def check(problems: tuple[Problem, ...]) -> None:
    (problem,) = problems
    assert problem.work == "dividing the queues of orders"
    assert problem.is_lasting
    assert "create the group (pyrmq group create missing)" in str(problem)


def test_a_push_consumer_of_threads(nameserver: str) -> None:
    with blocking.PushConsumer("missing", nameserver=nameserver) as consumer:
        consumer.subscribe("orders")
        assert list(consumer.problems) == []
        thread = threading.Thread(target=consumer.run, args=(lambda messages: None,))
        thread.start()
        while not (problems := consumer.problems):
            portal().run(trio.sleep, 0.05)
        consumer.stop()
        thread.join()
    check(problems)


def test_a_lite_pull_consumer_of_threads(nameserver: str) -> None:
    with blocking.LitePullConsumer("missing", nameserver=nameserver) as consumer:
        consumer.subscribe("orders")
        while not (problems := consumer.problems):
            assert list(consumer.poll(timeout=0.05)) == []
    check(problems)


def test_a_push_consumer_of_asyncio(nameserver: str) -> None:
    async def handle(messages: object) -> None:
        raise AssertionError("a consumer without a group got messages")

    async def main() -> tuple[Problem, ...]:
        consumer = aio.PushConsumer("missing", nameserver=nameserver)
        assert list(consumer.problems) == []
        async with consumer:
            await consumer.subscribe("orders")
            running = asyncio.ensure_future(consumer.run(handle))
            while not (problems := consumer.problems):  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0.05)
            await consumer.stop()
            await running
        return problems

    check(asyncio.run(main()))


def test_a_lite_pull_consumer_of_asyncio(nameserver: str) -> None:
    async def main() -> tuple[Problem, ...]:
        async with aio.LitePullConsumer("missing", nameserver=nameserver) as consumer:
            await consumer.subscribe("orders")
            while not (problems := consumer.problems):
                assert list(await consumer.poll(timeout=0.05)) == []
            return problems

    check(asyncio.run(main()))
