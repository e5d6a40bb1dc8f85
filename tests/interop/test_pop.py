"""Consumers that pop, on two brokers of 5.4.0 and on one of 5.5.0, across a restart, and refused by 4.9.7."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from pyrmq_core import ResponseError
from tests.interop.conftest import cluster_or_skip
from tests.support.apache import NEWEST, ApacheCluster
from tests.support.consumer_jobs import fresh, made_topic, send
from tests.support.pop_jobs import OrderedPopJobs, PopJobs, bodies_of, popping, received


@pytest.fixture(scope="module")
def newest() -> Iterator[ApacheCluster]:
    with cluster_or_skip(NEWEST, ("broker-a",)) as cluster:
        yield cluster


class TestOnTwoBrokers(PopJobs, OrderedPopJobs):
    """The jobs of every server."""

    @pytest.fixture
    def nameserver(self, apache_5: ApacheCluster) -> str:
        return apache_5.nameserver.address


@pytest.mark.soak
class TestOnTheNewestRelease(PopJobs, OrderedPopJobs):
    """The jobs of every server."""

    @pytest.fixture
    def nameserver(self, newest: ApacheCluster) -> str:
        return newest.nameserver.address


@pytest.mark.soak
async def test_a_receipt_survives_a_restart_of_its_broker(newest: ApacheCluster) -> None:
    """An orderly one: a broker that is killed forgets the pops of its last seconds."""
    nameserver = newest.nameserver.address
    topic, group = await made_topic(nameserver, queues=1), fresh("workers")
    await send(nameserver, topic, ["done", "kept"])
    async with popping(nameserver, group) as consumer:
        deliveries = await received(consumer, topic, 2)
        await trio.to_thread.run_sync(newest.brokers["broker-a"].restart)
        by_body = dict(zip(bodies_of(deliveries), deliveries, strict=True))
        await by_body["done"].ack()
        await by_body["kept"].give_back(0)
        again = await received(consumer, topic, 1)
        assert [(delivery.message.body, delivery.message.reconsume_times) for delivery in again] == [(b"kept", 1)]
        assert await consumer.receive(topic, 32, wait=1.0) == []


@pytest.mark.soak
async def test_a_broker_before_5_0_is_refused_by_name(apache_4: ApacheCluster) -> None:
    nameserver = apache_4.nameserver.address
    topic = await made_topic(nameserver)
    async with popping(nameserver, fresh("workers")) as consumer:
        with pytest.raises(
            ResponseError, match=rf"POP_MESSAGE.*{topic}.*pop needs a broker of 5\.0 or later"
        ) as caught:
            await consumer.receive(topic)
        assert caught.value.code == 3
        with pytest.raises(ResponseError, match=r"5\.0 or later"):
            await consumer.run(topic, print)
