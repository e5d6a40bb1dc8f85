"""Pull consumers over a master and its slave: they go on with the slave, and return; offsets come back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from pyrmq_core import ConnectFailed, Message, MessageQueue, OffsetRange, Producer, PullConsumer, ReadWindow, decode
from pyrmq_core.testing import EmbeddedCluster

QUEUE = MessageQueue("orders", "broker-a", 0)
READABLE = {"slaveReadEnable": "true"}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(slaves=1, sync=True, topics={"orders": 1}, settings=READABLE) as cluster:
        await send(cluster, 0, 40)
        await cluster.wait_for_slaves()
        yield cluster


async def send(cluster: EmbeddedCluster, first: int, last: int) -> None:
    async with Producer("shop", nameserver=cluster.nameserver) as producer:
        for number in range(first, last):
            await producer.send(Message("orders", b"%d" % number))


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


async def pulled(consumer: PullConsumer, first: int, last: int) -> list[bytes]:
    """Returns the bodies of pulls from one offset to another."""
    bodies, offset = [], first
    with trio.fail_after(30):
        while offset < last:
            result = await consumer.pull(QUEUE, offset, max_messages=last - offset, wait=0.5)
            bodies += [message.body for message in result.messages]
            offset = result.next_offset
    return bodies


async def test_pulls_go_on_with_the_slave_and_return(cluster: EmbeddedCluster) -> None:
    async with PullConsumer("audit", nameserver=cluster.nameserver) as consumer:
        assert await pulled(consumer, 0, 10) == numbers(0, 10)
        await cluster.kill("broker-a")
        assert await pulled(consumer, 10, 40) == numbers(10, 40)
        assert await consumer.offset_bounds([QUEUE]) == {QUEUE: OffsetRange(0, 40)}
        await cluster.start("broker-a")
        await send(cluster, 40, 60)
        await cluster.stop("broker-a-1")
        assert await pulled(consumer, 40, 60) == numbers(40, 60)


async def test_a_pull_from_a_broker_without_a_slave_fails_as_before(cluster: EmbeddedCluster) -> None:
    async with PullConsumer("audit", nameserver=cluster.nameserver) as consumer:
        await consumer.pull(QUEUE, 0)
        await cluster.stop("broker-a-1")
        await cluster.kill("broker-a")
        for call in (consumer.pull(QUEUE, 0), consumer.min_offset(QUEUE)):
            with pytest.raises(ConnectFailed):
                await call


async def test_offsets_that_were_committed_at_the_slave_are_there_when_its_master_is_back(
    cluster: EmbeddedCluster,
) -> None:
    async with PullConsumer("audit", nameserver=cluster.nameserver) as consumer:
        await consumer.commit(QUEUE, 10)
        await cluster.wait_for_slaves()
        await cluster.kill("broker-a")
        assert await consumer.committed(QUEUE) == 10
        await consumer.commit(QUEUE, 25)
        await cluster.start("broker-a")
        await cluster.wait_for_slaves()
        await cluster.stop("broker-a-1")
        assert await consumer.committed(QUEUE) == 25


async def test_a_range_is_read_whole_over_the_death_of_the_master(cluster: EmbeddedCluster) -> None:
    """Pulls of two messages each: the master ends between two of them, and is back before the end."""
    await send(cluster, 40, 400)
    window = ReadWindow(4, max_messages_a_pull=2, patience=30)
    async with (
        PullConsumer("audit", nameserver=cluster.nameserver) as consumer,
        consumer.read(QUEUE, 0, 400, window=window) as pulls,
    ):
        bodies, addresses = [], set()
        async for pull in pulls:
            messages = decode(pull, OffsetRange(pull.start, pull.next_offset))
            addresses.add(pull.address)
            for message in messages:
                bodies.append(message.body)
                if len(bodies) == 100:
                    await cluster.kill("broker-a")
                elif len(bodies) == 250:
                    await cluster.start("broker-a")
                    await cluster.stop("broker-a-1")
    assert bodies == numbers(0, 400)
    assert len(addresses) == 2


async def test_arrow_batches_are_whole_over_the_death_of_the_master(cluster: EmbeddedCluster) -> None:
    await send(cluster, 40, 400)
    window = ReadWindow(4, max_messages_a_pull=2, patience=30)
    async with (
        PullConsumer("audit", nameserver=cluster.nameserver) as consumer,
        consumer.read_arrow(QUEUE, 0, 400, columns=["body"], window=window) as batches,
    ):
        await cluster.kill("broker-a")
        bodies = [body async for batch in batches for body in batch.column("body").to_pylist()]
    assert bodies == numbers(0, 400)
