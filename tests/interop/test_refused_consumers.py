"""Consumers that a broker refuses, ours and Apache's: their problems say so, in the broker's own words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from pyrmq_core import (
    Admin,
    Client,
    LitePullConsumer,
    Message,
    Problem,
    Producer,
    PullConsumer,
    PushConsumer,
    ResponseCode,
    ResponseError,
)
from pyrmq_core.protocol.messages.names import TOOLS_GROUP
from pyrmq_spark.worker import DEFAULT_CONSUMER_GROUP
from tests.support.apache import NEWEST_AND_LONG_OLDER, boot_cluster
from tests.support.consumer_jobs import fresh
from tests.support.guarded import KEY, Guarded
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import boot_our_cluster
from tests.support.waiting import until

SECONDS = 60.0
BY_HAND = {"autoCreateSubscriptionGroup": "false"}


async def problems_of(client: Client, group: str, topic: str) -> list[tuple[Problem, ...]]:
    """Returns the first lasting problems of a push and of a lite pull consumer; neither gets a message."""
    async with PushConsumer(group, client=client) as push, trio.open_nursery() as nursery:
        await push.subscribe(topic)
        nursery.start_soon(push.run, lambda messages: None)
        await until(lambda: any(problem.is_lasting for problem in push.problems), SECONDS)
        pushed = push.problems
        await push.stop()
    async with LitePullConsumer(group, client=client) as lite:
        await lite.subscribe(topic)
        await until(lambda: any(problem.is_lasting for problem in lite.problems), SECONDS)
        return [pushed, lite.problems]


async def test_a_wrong_secret_is_named(guarded: Guarded) -> None:
    topic = fresh("refused")
    async with guarded.client() as client, Admin(client=client) as admin:
        await admin.create_topic(topic, queues=1)
    async with guarded.client(KEY, "not-the-s3cret") as client:
        for problems in await problems_of(client, fresh("billing"), topic):
            texts = "\n".join(map(str, problems))
            assert "the heartbeat to 127.0.0.1:" in texts
            assert "signature" in texts
            assert "check the topic's permission and, with ACL on, the access key and its policies" in texts


@contextmanager
def _servers(kind: str) -> Iterator[str]:
    if kind == "ours":
        with boot_our_cluster(("broker-a",), broker_settings=BY_HAND) as cluster:
            yield cluster.nameserver.address
        return
    try:
        with boot_cluster(kind, broker_settings=BY_HAND) as apache:
            yield apache.nameserver.address
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module", params=["ours", *NEWEST_AND_LONG_OLDER])
def nameserver(request: pytest.FixtureRequest) -> Iterator[str]:
    """A cluster whose broker creates no groups."""
    with _servers(request.param) as address:
        yield address


async def test_a_group_that_does_not_exist_is_named(nameserver: str) -> None:
    topic, group = fresh("orders"), fresh("missing")
    async with Admin(nameserver=nameserver, timeout=20) as admin:
        await admin.create_topic(topic, queues=1)
    async with Client(nameserver=nameserver) as client:
        for problems in await problems_of(client, group, topic):
            lasting = [str(problem) for problem in problems if problem.is_lasting]
            assert any(group in text and "create the group" in text for text in lasting)


async def test_reads_need_their_group_and_sends_need_none(nameserver: str) -> None:
    """The groups of docs/rocketmq-services.md: that of Spark's reads, and the one that brokers have for tools."""
    topic = fresh("orders")
    async with Client(nameserver=nameserver) as client, Admin(client=client, timeout=20) as admin:
        await admin.create_topic(topic, queues=1)
        async with Producer(fresh("shop"), client=client) as producer:
            await producer.send(Message(topic, b"one"), timeout=20)
        async with (
            PullConsumer(DEFAULT_CONSUMER_GROUP, client=client, timeout=20) as consumer,
            PullConsumer(TOOLS_GROUP, client=client, timeout=20) as tools,
        ):
            (queue,) = await consumer.message_queues(topic)
            assert [message.body for message in (await tools.pull(queue, 0, wait=15)).messages] == [b"one"]
            with pytest.raises(ResponseError, match=DEFAULT_CONSUMER_GROUP) as refused:
                await consumer.pull(queue, 0)
            assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            await admin.groups.create(DEFAULT_CONSUMER_GROUP)
            assert [message.body for message in (await consumer.pull(queue, 0)).messages] == [b"one"]
