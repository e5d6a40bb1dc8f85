"""Polls that wait while their consumer is closed by another task or thread: they end at once."""

from __future__ import annotations

import asyncio
import threading

import pytest
import trio

from pyrmq_core import Client, InvalidState, LitePullConsumer, aio, blocking
from pyrmq_core.blocking import EmbeddedCluster as BlockingCluster
from pyrmq_core.loop_thread.portal import portal
from pyrmq_core.testing import EmbeddedCluster
from tests.support.waiting import until

FOREVER = 3600.0


async def test_a_poll_of_a_consumer_that_another_task_closes_ends_at_once() -> None:
    async with (
        EmbeddedCluster(topics={"orders": 1}) as cluster,
        Client(nameserver=cluster.nameserver) as client,
        trio.open_nursery() as nursery,
    ):
        with trio.fail_after(60):
            async with LitePullConsumer("billing", client=client) as consumer:
                await consumer.subscribe("orders")

                async def poll() -> None:
                    with pytest.raises(InvalidState, match="billing"):
                        await consumer.poll(timeout=FOREVER)

                nursery.start_soon(poll)
                await until(lambda: consumer._is_polling)
            await until(lambda: not consumer._is_polling)


def test_a_poll_of_a_consumer_that_another_thread_closes_ends_at_once() -> None:
    with BlockingCluster(topics={"orders": 1}) as cluster:
        consumer = blocking.LitePullConsumer("billing", nameserver=cluster.nameserver)
        consumer.open()
        consumer.subscribe("orders")
        raised: list[InvalidState] = []

        def poll() -> None:
            try:
                consumer.poll(timeout=FOREVER)
            except InvalidState as error:
                raised.append(error)

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        face = consumer._async()
        portal().run(until, lambda: face._is_polling)
        consumer.close()
        thread.join(30)
        assert not thread.is_alive()
        assert len(raised) == 1


def test_a_poll_of_a_consumer_that_another_asyncio_task_closes_ends_at_once() -> None:
    async def main(nameserver: str) -> None:
        consumer = aio.LitePullConsumer("billing", nameserver=nameserver)
        await consumer.open()
        await consumer.subscribe("orders")
        poll = asyncio.ensure_future(consumer.poll(timeout=FOREVER))
        assert consumer._held is not None
        face = consumer._held.value
        await asyncio.to_thread(portal().run, until, lambda: face._is_polling)
        await consumer.close()
        with pytest.raises(InvalidState):
            await asyncio.wait_for(poll, 30)

    with BlockingCluster(topics={"orders": 1}) as cluster:
        asyncio.run(main(cluster.nameserver))
