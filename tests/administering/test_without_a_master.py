"""Groups and messages while a master is gone: tables come from its slave, and changes are refused by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import trio

from pyrmq_core import Admin, BrokerNotFound, Message, MessageQueue, Producer, PullConsumer
from pyrmq_core.testing import EmbeddedCluster

QUEUE = MessageQueue("orders", "broker-a", 0)
READABLE = {"slaveReadEnable": "true"}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(slaves=1, sync=True, topics={"orders": 1}, settings=READABLE) as cluster:
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            for _ in range(3):
                await producer.send(Message("orders", b"x", keys="k1"))
        await cluster.wait_for_slaves()
        yield cluster


async def test_tables_come_from_the_slave_and_changes_are_refused(cluster: EmbeddedCluster) -> None:
    async with (
        Admin(nameserver=cluster.nameserver) as admin,
        PullConsumer("audit", nameserver=cluster.nameserver) as consumer,
    ):
        await consumer.message_queues("orders")
        await cluster.kill("broker-a")
        with trio.fail_after(30):
            while (progress := await admin.groups.progress("audit", topic="orders")).lag != 2:
                await consumer.commit(QUEUE, 1)
        listed = await admin.groups.list()
        messages = await admin.messages.by_key("orders", "k1")
        with pytest.raises(BrokerNotFound, match="broker-a of topic orders has no master now; no offset was changed"):
            await admin.groups.reset("audit", "orders", "latest")
        with pytest.raises(BrokerNotFound, match="knows no master broker"):
            await admin.groups.create("audit")
        with pytest.raises(BrokerNotFound, match="broker-a"):
            await admin.groups.seek("audit", QUEUE, 0)
    (row,) = progress.queues
    assert (row.consumer_offset, row.broker_offset) == (1, 3)
    assert row.waiting_since is not None
    assert abs((row.waiting_since - datetime.now(UTC)).total_seconds()) < 60
    assert "TOOLS_CONSUMER" in {row.group for row in listed.groups}
    assert len(messages.messages) == 3
    assert (progress.failures, listed.failures, messages.failures) == ({}, {}, {})
