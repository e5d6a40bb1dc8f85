"""Sends to synchronous masters of ours that have no slave: stored, with a status that reaches every caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
import trio

from pyrmq_core import (
    Admin,
    LocalTransactionState,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    SendResult,
    SendStatus,
)
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.testing import EmbeddedCluster
from tests.support.apache import ask
from tests.support.transaction_jobs import Ledger, wait_visible

TOPIC = "orders"
MASTERS: Mapping[SendStatus, Mapping[str, str]] = {
    SendStatus.FLUSH_SLAVE_TIMEOUT: {"inSyncReplicas": "2", "slaveTimeout": "20"},
    SendStatus.SLAVE_NOT_AVAILABLE: {"haSlaveFallbehindMax": "1000", "slaveTimeout": "600000"},
}
# Longer than a loaded machine needs, shorter than the second master waits for a slave that is there.
SECONDS = 60.0


@pytest.fixture(params=MASTERS, ids=lambda status: status.name)
def status(request: pytest.FixtureRequest) -> SendStatus:
    assert isinstance(request.param, SendStatus)
    return request.param


@pytest.fixture
async def cluster(status: SendStatus) -> AsyncIterator[EmbeddedCluster]:
    settings = {"brokerRole": "SYNC_MASTER", **MASTERS[status]}
    async with EmbeddedCluster(brokers=2, settings=settings) as cluster:
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=2)
        yield cluster


async def stored(cluster: EmbeddedCluster, bodies: set[bytes]) -> list[MessageExt]:
    async with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
        return await wait_visible(consumer, TOPIC, bodies)


async def test_every_kind_of_send_is_stored_and_has_the_status(cluster: EmbeddedCluster, status: SendStatus) -> None:
    async with Producer("g", nameserver=cluster.nameserver, send_timeout=SECONDS) as producer:
        results = [await producer.send(Message(TOPIC, b"one"))]
        results += await producer.send_batch([Message(TOPIC, b"batch %d" % number) for number in range(3)])
        results.append(await (await producer.send_soon(Message(TOPIC, b"soon"))).wait())
        results += await (await producer.send_batch_soon([Message(TOPIC, b"batch soon")])).wait()
        await producer.send_oneway(Message(TOPIC, b"oneway"))
    assert [result.status for result in results] == [status] * 6
    messages = await stored(cluster, {b"one", b"batch 0", b"batch 1", b"batch 2", b"soon", b"batch soon", b"oneway"})
    assert len(messages) == 7
    assert {result.msg_id for result in results} < {message.msg_id for message in messages}


async def test_with_the_setting_the_message_goes_to_a_broker_that_stores_it_safely(
    cluster: EmbeddedCluster, status: SendStatus
) -> None:
    """Without such a broker each try is stored, and the last one's status is the result."""
    async with Producer(
        "g", nameserver=cluster.nameserver, send_timeout=SECONDS, retry_another_broker_when_not_store_ok=True
    ) as producer:
        nowhere = await producer.send(Message(TOPIC, b"nowhere"))
        assert nowhere.status is status
        body = b"inSyncReplicas=1\nhaSlaveFallbehindMax=-1\n"
        change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        answer = await trio.to_thread.run_sync(ask, cluster.brokers["broker-b"], change)
        assert answer.code == 0
        results = [await producer.send(Message(TOPIC, b"safe")) for _ in range(4)]
    assert [(result.status, result.message_queue.broker_name) for result in results] == [
        (SendStatus.SEND_OK, "broker-b")
    ] * 4
    messages = await stored(cluster, {b"nowhere", b"safe"})
    assert {message.broker_name for message in messages if message.body == b"nowhere"} == {"broker-a", "broker-b"}
    assert {message.msg_id for message in messages if message.body == b"nowhere"} == {nowhere.msg_id}


async def test_a_transaction_is_rolled_back(cluster: EmbeddedCluster, status: SendStatus) -> None:
    begun: list[SendResult] = []

    def work(_: Message, result: SendResult) -> LocalTransactionState:
        begun.append(result)
        return LocalTransactionState.COMMIT_MESSAGE

    async with Producer(
        "g", nameserver=cluster.nameserver, send_timeout=SECONDS, transaction_listener=Ledger({})
    ) as producer:
        ended = await producer.send_in_transaction(Message(TOPIC, b"half"), work)
        await producer.send(Message(TOPIC, b"behind it"))
    assert (ended.result.status, ended.local_transaction_state) == (status, LocalTransactionState.ROLLBACK_MESSAGE)
    assert begun == []
    assert [message.body for message in await stored(cluster, {b"behind it"})] == [b"behind it"]
