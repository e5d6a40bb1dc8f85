"""Consumers that a broker refuses, ours and Apache's: their problems say so, in the broker's own words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from pyrmq_core import Admin, Client, LitePullConsumer, Problem, PushConsumer
from tests.support.apache import VERSIONS, boot_cluster
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


@pytest.fixture(scope="module", params=["ours", *VERSIONS])
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
