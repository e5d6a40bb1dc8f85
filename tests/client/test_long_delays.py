"""Delays longer than 3 days, for brokers that are set up for them: each face sends them, and the broker decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import trio

from pyrmq_core import Message, Producer, SendFailed, SendResult, SendStatus, aio, blocking
from pyrmq_core.blocking import EmbeddedCluster

MAX_DAYS = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(settings={"timerMaxDelaySec": str(MAX_DAYS * 86_400)}) as cluster:
        yield cluster


def late(days: int) -> list[Message]:
    """Returns a message of each form."""
    return [
        Message("later", b"x", delay=timedelta(days=days)),
        Message("later", b"x", deliver_at=datetime.now(UTC) + timedelta(days=days)),
    ]


def test_each_face_sends_what_its_broker_takes(cluster: EmbeddedCluster) -> None:
    results: list[SendResult] = []

    async def from_trio() -> None:
        async with Producer("shop", nameserver=cluster.nameserver, send_timeout=20) as producer:
            results.extend([await producer.send(message) for message in late(20)])

    async def from_asyncio() -> None:
        async with aio.Producer("shop-asyncio", nameserver=cluster.nameserver, send_timeout=20) as producer:
            results.extend([await producer.send(message) for message in late(20)])

    trio.run(from_trio)
    asyncio.run(from_asyncio())
    with blocking.Producer("shop-threads", nameserver=cluster.nameserver, send_timeout=20) as producer:
        results.extend(producer.send(message) for message in late(20))
    assert [result.status for result in results] == [SendStatus.SEND_OK] * 6


def test_the_broker_refuses_what_is_further_ahead(cluster: EmbeddedCluster) -> None:
    with blocking.Producer("shop", nameserver=cluster.nameserver, send_timeout=20) as producer:
        for message in late(40):
            with pytest.raises(SendFailed, match=r"the max delay 2592000000ms"):
                producer.send(message)
