"""Groups of lite topics on the embedded cluster: the jobs of every server, and the other faces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from pyrmq_core import InvalidArgument, PopConsumer, ResponseError, aio, blocking
from pyrmq_core.protocol.requests.pop.lite import LiteAction, LiteSubscriptionCtl
from pyrmq_core.testing import PASS, Command, EmbeddedCluster, Peer, RequestCode, refusal
from tests.support.lite_group_jobs import LiteGroupJobs, made, sent
from tests.support.lite_topic_jobs import SETTINGS


@pytest.fixture
async def nameserver() -> AsyncIterator[str]:
    async with EmbeddedCluster(settings=SETTINGS) as cluster:
        yield cluster.nameserver


class TestOnTwoBrokers(LiteGroupJobs):
    """The jobs of every server."""

    @pytest.fixture
    async def nameserver(self) -> AsyncIterator[str]:
        async with EmbeddedCluster(brokers=2, settings=SETTINGS) as cluster:
            yield cluster.nameserver


async def test_the_blocking_face_subscribes(nameserver: str) -> None:
    topic, group = await made(nameserver)
    await sent(nameserver, topic, "a1 a2 b1")

    def work() -> list[bytes]:
        with blocking.PopConsumer(group, nameserver=nameserver) as consumer:
            consumer.subscribe_lite(topic, "a")
            assert consumer.lite_topics(topic) == {"a"}
            deliveries = consumer.receive(topic, 2, lite=True)
            with deliveries[0], deliveries[1]:
                bodies = [delivery.message.body for delivery in deliveries]
            consumer.unsubscribe_lite(topic, "a")
            assert consumer.receive(topic, wait=0, lite=True) == []
            return bodies

    with trio.fail_after(60):
        assert await trio.to_thread.run_sync(work) == [b"a1", b"a2"]


async def test_the_asyncio_face_subscribes(nameserver: str) -> None:
    topic, group = await made(nameserver)
    await sent(nameserver, topic, "a1 a2 b1")

    async def work() -> list[bytes]:
        async with aio.PopConsumer(group, nameserver=nameserver) as consumer:
            await consumer.subscribe_lite(topic, "a")
            assert await consumer.lite_topics(topic) == {"a"}
            deliveries = await consumer.receive(topic, 2, lite=True)
            for delivery in deliveries:
                await delivery.ack()
            await consumer.unsubscribe_lite(topic, "a")
            assert await consumer.receive(topic, wait=0, lite=True) == []
            return [delivery.message.body for delivery in deliveries]

    with trio.fail_after(60):
        assert await trio.to_thread.run_sync(lambda: asyncio.run(work())) == [b"a1", b"a2"]


async def test_a_subscription_that_a_broker_refused_ends_at_the_others() -> None:
    async with EmbeddedCluster(brokers=2, settings=SETTINGS) as cluster:
        topic, group = await made(cluster.nameserver)

        async def refuses(request: Command, peer: Peer) -> Command:
            return refusal(1, "refused by the test")

        async def passes(request: Command, peer: Peer) -> Any:
            return PASS

        cluster.control(RequestCode.LITE_SUBSCRIPTION_CTL, refuses, server="broker-a", times=1)
        accepting = cluster.control(RequestCode.LITE_SUBSCRIPTION_CTL, passes, server="broker-b")
        async with PopConsumer(group, nameserver=cluster.nameserver) as consumer:
            with pytest.raises(ResponseError, match="refused by the test"):
                await consumer.subscribe_lite(topic, "a")
    changes = [LiteSubscriptionCtl.from_command(request).changes for request in accepting.seen]
    assert [change.action for (change,) in changes] == [LiteAction.PARTIAL_ADD, LiteAction.COMPLETE_REMOVE]


async def test_wrong_arguments_are_refused(nameserver: str) -> None:
    async with PopConsumer("g", nameserver=nameserver) as consumer:
        for names in ("", "a b", "x" * 65, [], ["a", "%LMQ%$b"], ["a", 1], 5, [["a"]]):
            with pytest.raises(InvalidArgument, match="lite_topics="):
                await consumer.subscribe_lite("T", names)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="start=-1"):
            await consumer.subscribe_lite("T", "a", start=-1)
        with pytest.raises(InvalidArgument, match="lite=True"):
            await consumer.receive("T", lite=True, tags="a")
        with pytest.raises(InvalidArgument, match="lite=1"):
            await consumer.receive("T", lite=1)  # type: ignore[arg-type]
