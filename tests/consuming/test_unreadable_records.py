"""Consumers pass behind records that they cannot read, after some tries and with a warning; all others come once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
import trio

from pyrmq_core import Admin, Client, ConsumeFromWhere, LitePullConsumer, Message, MessageQueue, Producer
from pyrmq_core.client.consumer.consume import intake
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.properties import encode_properties
from pyrmq_core.protocol.messages.record import pack_host
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.testing import EmbeddedCluster
from tests.support.consumer_jobs import SECONDS, Seen, committed, consuming, fresh
from tests.support.raw_send_backs import send
from tests.support.waiting import until

COMPRESSED = 1
PASSED = "could not be read in 5 tries and is not consumed"


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddedCluster]:
    monkeypatch.setattr(intake, "FAILURE_PAUSE_SECONDS", 0.05)
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        yield cluster


async def send_nonsense(cluster: EmbeddedCluster, topic: str) -> None:
    """Sends a body that says it is compressed, and is not: every broker takes it."""
    async with Client(nameserver=cluster.nameserver) as client:
        command = send(topic, sys_flag=COMPRESSED, body=b"nonsense").to_command()
        answer = await client._session.call(cluster.brokers["broker-a"], command, timeout=SECONDS)
    assert answer.code == 0


async def send_orders(cluster: EmbeddedCluster, first: int, last: int) -> None:
    async with Producer(fresh("senders"), nameserver=cluster.nameserver) as producer:
        for number in range(first, last):
            await producer.send(Message("orders", b"%d" % number), queue=MessageQueue("orders", "broker-a", 0))


def given_back_whole(topic: str) -> Append:
    """Returns a batch as earlier brokers stored it when one of its messages was given back."""
    body = encode_batch_body(BatchItem(0, b"inner %d" % number, b"") for number in range(3))
    properties = encode_properties({"UNIQ_KEY": "R", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "7F01"}).encode()
    host = pack_host("127.0.0.1:10911")
    return Append(topic, 0, [piece(0, body, properties)], 1, host, host, sys_flag=BATCH_RECORD, inner_num=1)


def store_whole(cluster: EmbeddedCluster, topic: str) -> None:
    running = cluster._brokers["broker-a"].running
    assert running is not None
    running.broker.store.put(given_back_whole(topic), clock.now_ms())


@pytest.mark.parametrize("count", [1, 100])
async def test_a_push_consumer_goes_on_behind_a_record(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """One queue is pulled once, the other read ahead."""
    group, seen = fresh("group"), Seen()
    await send_orders(cluster, 0, count)
    await send_nonsense(cluster, "orders")
    await send_orders(cluster, count, 2 * count)
    async with consuming(cluster.nameserver, group, "orders", seen):
        await seen.wait(2 * count)
    assert sorted(map(int, seen.bodies)) == list(range(2 * count))
    assert await committed(cluster.nameserver, group, "orders") == {
        MessageQueue("orders", "broker-a", 0): 2 * count + 1
    }
    warned = [record for record in caplog.records if PASSED in record.message]
    assert [record.levelno for record in warned] == [logging.WARNING]
    assert f"the message at offset {count}" in warned[0].message


async def test_a_lite_pull_consumer_goes_on_behind_a_record(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await send_nonsense(cluster, "orders")
    await send_orders(cluster, 0, 2)
    seen: list[bytes] = []
    first = ConsumeFromWhere.FIRST_OFFSET
    async with LitePullConsumer(fresh("group"), nameserver=cluster.nameserver, consume_from_where=first) as consumer:
        await consumer.subscribe("orders")
        with trio.fail_after(SECONDS):
            while len(seen) < 2:
                seen += [message.body for message in await consumer.poll(1.0)]
    assert seen == [b"0", b"1"]
    assert caplog.text.count(PASSED) == 1


async def test_batches_that_were_given_back_whole_block_no_retries(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    group, seen = fresh("group"), Seen()
    async with consuming(cluster.nameserver, group, "orders", seen) as consumer:
        await until(lambda: len(consumer.assigned_queues) == 2, SECONDS)  # its retry topic is there, too
    retries = f"%RETRY%{group}"
    for _ in range(2):
        store_whole(cluster, retries)
    async with Producer(fresh("senders"), nameserver=cluster.nameserver) as producer:
        await producer.send(Message("orders", b"an order"))
    async with Client(nameserver=cluster.nameserver) as client:
        again = send(retries, body=b"again", properties="RETRY_TOPIC\x01orders\x02", reconsume_times=1)
        address = cluster.brokers["broker-a"]
        assert (await client._session.call(address, again.to_command(), timeout=SECONDS)).code == 0
    async with consuming(cluster.nameserver, group, "orders", seen):
        await seen.wait(2)
    assert sorted(seen.bodies) == ["again", "an order"]
    assert await committed(cluster.nameserver, group, retries) == {MessageQueue(retries, "broker-a", 0): 3}
    assert caplog.text.count("is a whole batch, which earlier brokers took back") >= 2
    assert caplog.text.count(PASSED) == 2
    assert "7F01" in caplog.text


async def test_dead_letters_are_listed_beside_those_that_cannot_be_read(cluster: EmbeddedCluster) -> None:
    group = fresh("group")
    dead = f"%DLQ%{group}"
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic(dead, queues=1)
        for _ in range(2):
            store_whole(cluster, dead)
        async with Client(nameserver=cluster.nameserver) as client:
            letter = send(dead, body=b"letter", properties="RETRY_TOPIC\x01orders\x02").to_command()
            assert (await client._session.call(cluster.brokers["broker-a"], letter, timeout=SECONDS)).code == 0
        letters = await admin.messages.dead_letters(group)
    assert [message.body for message in letters.messages] == [b"letter"]
    assert "is a whole batch" in str(letters.failures["broker-a"])
