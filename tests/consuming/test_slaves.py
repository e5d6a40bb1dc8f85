"""Group members whose broker dies: they go on with its slave and later with the master, and get each message once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio

from pyrmq_core import ConsumeFromWhere, LitePullConsumer, Message, MessageExt, Producer, PullConsumer, PushConsumer
from pyrmq_core.testing import PASS, Command, EmbeddedCluster, Pass, Peer, RequestCode
from tests.support.waiting import until

SETTINGS = {"slaveReadEnable": "true"}
QUEUES = 2
HALF = 10
SMALL_PULLS: dict[str, Any] = {"pull_batch_size": 5, "consume_from_where": ConsumeFromWhere.FIRST_OFFSET}


async def first_half(request: Command, peer: Peer) -> Pass | None:
    """Lets the master answer pulls of the first messages alone."""
    return PASS if int(request.ext["queueOffset"]) < HALF else None


@asynccontextmanager
async def pushed(nameserver: str, seen: list[bytes], *, orderly: bool) -> AsyncIterator[None]:
    async def handle(messages: Sequence[MessageExt]) -> None:
        seen.extend([message.body for message in messages])

    async with (
        PushConsumer("g", nameserver=nameserver, **SMALL_PULLS) as consumer,
        trio.open_nursery() as nursery,
    ):
        await consumer.subscribe("orders")

        async def run() -> None:
            await consumer.run(handle, orderly=orderly)

        nursery.start_soon(run)
        yield
        await consumer.stop()


@asynccontextmanager
async def polled(nameserver: str, seen: list[bytes]) -> AsyncIterator[None]:
    async with (
        LitePullConsumer("g", nameserver=nameserver, **SMALL_PULLS) as consumer,
        trio.open_nursery() as nursery,
    ):
        await consumer.subscribe("orders")

        async def poll() -> None:
            while True:
                seen.extend([message.body for message in await consumer.poll(1.0)])

        nursery.start_soon(poll)
        yield
        nursery.cancel_scope.cancel()


KINDS: dict[str, Callable[[str, list[bytes]], AbstractAsyncContextManager[None]]] = {
    "concurrent": lambda nameserver, seen: pushed(nameserver, seen, orderly=False),
    "orderly": lambda nameserver, seen: pushed(nameserver, seen, orderly=True),
    "lite pull": polled,
}


async def send(cluster: EmbeddedCluster, first: int, last: int) -> None:
    async with Producer("shop", nameserver=cluster.nameserver) as producer:
        for number in range(first, last):
            await producer.send(Message("orders", b"%d" % number))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_member_goes_on_with_the_slave_and_returns(kind: str) -> None:
    seen: list[bytes] = []
    async with EmbeddedCluster(slaves=1, sync=True, topics={"orders": QUEUES}, settings=SETTINGS) as cluster:
        await send(cluster, 0, 2 * QUEUES * HALF)
        await cluster.wait_for_slaves()
        pulls = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
        rules = [cluster.control(code, first_half, server="broker-a") for code in pulls]
        async with KINDS[kind](cluster.nameserver, seen):
            await until(lambda: len(seen) == 20)
            await cluster.kill("broker-a")
            await until(lambda: len(seen) == 40, 30)
            for rule in rules:
                rule.remove()
            await cluster.start("broker-a")
            await send(cluster, 40, 60)
            await cluster.wait_for_slaves()
            await cluster.kill("broker-a-1")
            await until(lambda: len(seen) == 60, 40)
        assert sorted(seen, key=int) == [b"%d" % number for number in range(60)]
        async with PullConsumer("g", nameserver=cluster.nameserver) as consumer:
            queues = await consumer.message_queues("orders")
            committed = await consumer.committed_offsets(queues)
        assert sum(offset or 0 for offset in committed.values()) == 60


async def test_a_group_that_began_at_the_slave_goes_on_at_the_master() -> None:
    """The master knows neither the group nor its retry topic when it is back; the member is gone by then."""
    seen: list[bytes] = []
    async with EmbeddedCluster(slaves=1, topics={"orders": QUEUES}, settings=SETTINGS) as cluster:
        await send(cluster, 0, HALF)
        await cluster.wait_for_slaves()
        await cluster.kill("broker-a")
        async with pushed(cluster.nameserver, seen, orderly=False):
            await until(lambda: len(seen) == HALF, 60)
        await cluster.start("broker-a")
        await cluster.wait_for_slaves()
        await send(cluster, HALF, HALF + 1)
        async with pushed(cluster.nameserver, seen, orderly=False):
            await until(lambda: b"%d" % HALF in seen, 60)
        async with PullConsumer("g", nameserver=cluster.nameserver) as look:
            committed = await look.committed_offsets(await look.message_queues("orders"))
    assert sorted(seen, key=int) == [b"%d" % number for number in range(HALF + 1)]
    assert sum(offset or 0 for offset in committed.values()) == HALF + 1
