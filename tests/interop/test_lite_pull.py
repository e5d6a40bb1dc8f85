"""Lite pull consumers on both releases: the same tests as on our servers, Java members beside ours, and Java's tool."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from pyrmq_core import LitePullConsumer
from tests.support.apache import ApacheCluster
from tests.support.consumer_jobs import fresh
from tests.support.java_programs import start_java
from tests.support.lite_pull_jobs import (
    LitePullJobs,
    bodies_of,
    lite,
    made_topic,
    polled,
    queues_of,
    send,
    total_committed,
)
from tests.support.waiting import until

JAVA = Path(__file__).parent / "java" / "PollTopic.java"


@pytest.fixture
def nameserver(apache: ApacheCluster) -> str:
    return apache.nameserver.address


class TestOnApache(LitePullJobs):
    """The jobs of every server."""


async def test_a_java_member_and_ours_share_the_queues(apache: ApacheCluster, nameserver: str) -> None:
    topic, group = await made_topic(nameserver, queues=2), fresh("mixed")
    queues = await queues_of(nameserver, topic)
    arrivals: list[str] = []

    async def read(consumer: LitePullConsumer) -> None:
        while True:
            arrivals.extend(bodies_of(await consumer.poll(1.0)))

    async with lite(nameserver, group) as consumer, trio.open_nursery() as nursery:
        await consumer.subscribe(topic)
        nursery.start_soon(read, consumer)
        await until(lambda: set(consumer.assigned_queues) == set(queues), 30)
        with start_java(apache.version, JAVA, nameserver, group, topic) as java:
            await until(lambda: len(consumer.assigned_queues) == len(queues) // 2, 60)

            def by_java() -> list[str]:
                lines = java.log.read_text(errors="replace").splitlines()
                return [line.removeprefix("polled ") for line in lines if line.startswith("polled ")]

            bodies = [str(number) for number in range(40)]
            for number, body in enumerate(bodies):
                await send(nameserver, topic, [body], queues[number % len(queues)])
            await until(lambda: len(arrivals) + len(by_java()) >= 40, 60)
            assert Counter(arrivals + by_java()) == Counter(bodies)
            assert len(arrivals) == len(by_java()) == 20
        await until(lambda: set(consumer.assigned_queues) == set(queues), 60)  # the Java member was killed
        nursery.cancel_scope.cancel()


async def test_the_tool_shows_it_and_resets_it(apache: ApacheCluster, nameserver: str) -> None:
    topic, group = await made_topic(nameserver, queues=1), fresh("group")
    queues = await queues_of(nameserver, topic)
    for queue in queues:
        await send(nameserver, topic, ["1", "2", "3"], queue)
    async with lite(nameserver, group) as consumer:
        await consumer.subscribe(topic, tags="*")
        await polled(consumer, 6)
        await consumer.commit()
        client_id = consumer._session.client_id
        status = await trio.to_thread.run_sync(apache.mqadmin, "consumerStatus", "-g", group, "-i", client_id)
        assert "CONSUME_ACTIVELY" in status
        assert topic in status
        reset = ("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        await trio.to_thread.run_sync(apache.mqadmin, *reset)
        assert sorted(bodies_of(await polled(consumer, 6))) == ["1", "1", "2", "2", "3", "3"]
    assert await total_committed(nameserver, group, topic) == 6
