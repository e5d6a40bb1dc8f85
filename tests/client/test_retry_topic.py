"""A group that only commits is made known to tools, without joining it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Admin, Client, Message, MessageQueue, Producer, PullConsumer
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from tests.support.scripted import ROUTE, refuse, silence, topics_asked
from tests.support.stage import Stage

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)
SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
RETRY = "%RETRY%audit"


async def test_each_broker_makes_it_at_the_first_commit(stage: Stage, client: Client) -> None:
    for broker in stage.brokers.values():
        broker.always(SEND_BACK, refuse(1, "look message by offset failed, -1"))
    async with PullConsumer("audit", client=client) as consumer:
        await consumer.commit_offsets({A0: 1, A1: 2})
        await consumer.commit(A0, 3)
        await consumer.commit(B0, 4)
        await consumer.commit(B0, 5)
    for name, broker in stage.brokers.items():
        (request,) = broker.of(SEND_BACK)
        sent = ConsumerSendMsgBack.from_command(request)
        assert (sent.offset, sent.group, sent.broker_name) == (-1, "audit", name)
        assert broker.of(RequestCode.HEART_BEAT) == []  # it is no member
    assert topics_asked(stage.nameserver).count(RETRY) == 2


async def test_a_topic_that_is_known_is_left(stage: Stage, client: Client) -> None:
    stage.topic("%RETRY%NS%audit", brokers=["broker-a"])
    stage.topic("NS%orders")
    async with PullConsumer("audit", client=client, namespace="NS") as consumer:
        await consumer.commit(A0, 1)
        await consumer.commit(B0, 1)
    assert stage.brokers["broker-a"].of(SEND_BACK) == []
    (request,) = stage.brokers["broker-b"].of(SEND_BACK)
    assert request.ext["group"] == "NS%audit"


async def test_a_failure_does_not_fail_the_commit(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    """It is tried again after 30 s: until then commits do not wait for servers that are silent."""
    broker = stage.brokers["broker-a"]
    broker.always(SEND_BACK, silence)
    async with PullConsumer("audit", client=client, timeout=2) as consumer:
        for offset in range(5):
            await consumer.commit(A0, offset)
        assert await consumer.committed(A0) == 4
        assert len(broker.of(SEND_BACK)) == 1
        stage.nameserver.always(ROUTE, silence)
        await trio.sleep(31)
        began = trio.current_time()
        for offset in range(5):
            await consumer.commit(A0, offset)
        assert trio.current_time() - began < 10
        assert len(broker.of(SEND_BACK)) == 1
        stage.nameserver.always(ROUTE, None)
        broker.always(SEND_BACK, refuse(1))
        await trio.sleep(31)
        await consumer.commit_offsets({A0: 1, A1: 2})
        await trio.sleep(31)
        await consumer.commit(A0, 3)
    assert len(broker.of(SEND_BACK)) == 2


@pytest.mark.parametrize("namespace", [None, "NS"])
async def test_our_broker_makes_the_topic_and_no_member(namespace: str | None) -> None:
    async with (
        EmbeddedCluster() as cluster,
        Client(nameserver=cluster.nameserver) as client,
        Admin(client=client, namespace=namespace) as admin,
        Producer("g", client=client, namespace=namespace) as producer,
        PullConsumer("audit", client=client, namespace=namespace) as consumer,
    ):
        await admin.create_topic("orders", queues=1)
        result = await producer.send(Message("orders", b"x"))
        await consumer.commit(result.message_queue, 1)
        (retry,) = await consumer.message_queues(RETRY)
        assert await consumer.max_offset(retry) == 0
        (config,) = (await admin.topic_config(RETRY)).values()
        assert (config.topic, config.read_queue_nums, config.write_queue_nums) == (RETRY, 1, 1)
