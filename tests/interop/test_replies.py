"""Requests and replies: the same answers on ours and on Apache's brokers, and Java's clients on ours."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from pyrmq_core import Admin, Client, Message, Producer, PullConsumer, SendFailed
from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster
from tests.support.java_programs import run_java, start_java
from tests.support.our_cluster import OurCluster, boot_our_cluster
from tests.support.raw_replies import check_answers
from tests.support.waiting import until

JAVA = Path(__file__).parent / "java"


@pytest.fixture(scope="module")
def ours() -> Iterator[OurCluster]:
    with boot_our_cluster(["broker-a"]) as cluster:
        yield cluster


async def test_the_answers_to_replies(apache: ApacheCluster) -> None:
    topic = f"t_{uuid.uuid4().hex[:8]}"
    async with (
        Client(nameserver=apache.nameserver.address) as client,
        Admin(client=client, timeout=20) as admin,
        PullConsumer("readers", client=client, timeout=20) as consumer,
    ):
        await admin.create_topic(topic, queues=1)
        await check_answers(client, consumer, topic, 29 if apache.version == "5.4.0" else 1)


@pytest.mark.parametrize("version", NEWEST_AND_LONG_OLDER)
async def test_java_asks_and_replies_on_our_broker(ours: OurCluster, version: str) -> None:
    nameserver, topic = ours.nameserver.address, f"t_{uuid.uuid4().hex[:8]}"
    async with (
        Client(nameserver=nameserver) as client,
        Admin(client=client, timeout=20) as admin,
        Producer("clients", client=client, send_timeout=15) as producer,
        PullConsumer("pricing", client=client, timeout=20) as consumer,
        trio.open_nursery() as nursery,
    ):
        await admin.create_topic(topic, queues=1)

        nursery.start_soon(answer_requests, producer, consumer, topic)
        printed = await trio.to_thread.run_sync(
            lambda: run_java(version, JAVA / "Asker.java", nameserver, topic, "how much?")
        )
        assert "reply python: how much?" in printed
        other = f"{topic}_java"
        await admin.create_topic(other, queues=1)
        with start_java(version, JAVA / "Replier.java", nameserver, other) as replier:
            await until(lambda: "ready" in replier.log.read_text(), seconds=60)
            reply = await producer.request(Message(other, b"how much?"), timeout=100)
        assert reply.body == b"java: how much?"
        nursery.cancel_scope.cancel()


async def answer_requests(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """Replies to every message of the topic's queue, until cancelled."""
    (queue,) = await consumer.message_queues(topic)
    offset = 0
    while True:
        pulled = await consumer.pull(queue, offset, wait=10)
        offset = pulled.next_offset
        for message in pulled.messages:
            with suppress(SendFailed):  # one that has given up
                await producer.reply(message, b"python: " + message.body)
