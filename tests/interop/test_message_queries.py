"""Messages found by id and by key, and a tenant's topics, at brokers of both releases."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio

from pyrmq_core import Admin, Client, Message, MessageExt, MessageQueue, Producer, PullConsumer, ResponseError
from pyrmq_core.client.admin.message_queries import MessageList
from tests.support.apache import ApacheCluster

SEND_KEYED = Path(__file__).parent / "java" / "SendKeyed.java"
HOUR = timedelta(hours=1)


async def indexed(query: Callable[[], Awaitable[tuple[MessageExt, ...]]], count: int) -> tuple[MessageExt, ...]:
    """Returns the messages when so many are found: a broker indexes them a moment after they are stored."""
    with trio.fail_after(30):
        while len(messages := await query()) < count:
            pass
    return messages


async def test_messages_are_found_by_id_and_key(apache: ApacheCluster) -> None:
    topic = f"t_{uuid.uuid4().hex[:8]}"
    async with Client(nameserver=apache.nameserver.address) as client, Admin(client=client, timeout=20) as admin:
        await admin.create_topic(topic, queues=2)
        async with Producer("g", client=client, send_timeout=20) as producer:
            results = [
                await producer.send(Message(topic, b"%d" % number, keys=["all", f"k{number}"])) for number in range(8)
            ]

        async def keyed(key: str, begin: datetime | None = None, end: datetime | None = None) -> tuple[MessageExt, ...]:
            listed = await admin.messages.by_key(topic, key, begin=begin, end=end)
            assert not listed.failures
            return listed.messages

        messages = await indexed(lambda: keyed("all"), 8)
        assert {message.broker_name for message in messages} == {"broker-a", "broker-b"}
        assert {message.msg_id for message in messages} == {result.msg_id for result in results}
        (third,) = await indexed(lambda: keyed("k3"), 1)
        assert (third.body, third.offset_msg_id) == (b"3", results[3].offset_msg_id)
        assert await admin.messages.by_unique_key(topic, results[3].msg_id) == MessageList((third,), {})
        assert await admin.messages.by_unique_key(topic, "0" * 32) == MessageList((), {})
        assert await keyed("k") == ()
        now = datetime.now(UTC)
        assert await keyed("k3", begin=now - HOUR, end=now + HOUR) == (third,)
        assert await keyed("k3", end=now - HOUR) == ()
        assert await admin.messages.by_id(results[3].offset_msg_id, topic=topic) == third
        with pytest.raises(ResponseError, match="can not find message by the offset"):
            await admin.messages.by_id(f"{third.offset_msg_id[:16]}{2**60:016X}", topic=topic)
        assert await admin.messages.earliest_store_time(results[3].message_queue) == min(
            message.store_timestamp
            for message in messages
            if (message.broker_name, message.queue_id) == (third.broker_name, third.queue_id)
        )
        assert await admin.messages.by_id(results[0].offset_msg_id) in messages


async def test_a_tenant_is_shared_with_java(apache: ApacheCluster) -> None:
    topic, group = f"t_{uuid.uuid4().hex[:8]}", f"g_{uuid.uuid4().hex[:8]}"
    async with (
        Client(nameserver=apache.nameserver.address) as client,
        Admin(client=client, namespace="tenant", timeout=20) as admin,
        PullConsumer(group, client=client, namespace="tenant", timeout=20) as consumer,
    ):
        await admin.create_topic(topic, queues=1)
        assert topic in await admin.topics.list()
        sent = await trio.to_thread.run_sync(
            apache.run_java, SEND_KEYED, apache.nameserver.address, topic, "tenant", "theirs"
        )
        (_, _, broker_name, queue_id), *_ = [line.split() for line in sent.splitlines() if line.startswith("sent ")]
        queue = MessageQueue(topic, broker_name, int(queue_id))
        assert queue in await consumer.message_queues(topic)
        (message,) = (await consumer.pull(queue, 0, wait=10)).messages
        assert (message.topic, message.body) == (topic, b"theirs")
        assert await indexed(lambda: found_by_id(admin, message), 1) == (message,)
        await consumer.commit(queue, 1)
        assert await consumer.committed(queue) == 1
        on_wire = replace(queue, topic=f"tenant%{topic}")
        async with PullConsumer(f"tenant%{group}", client=client, timeout=20) as plain:
            assert on_wire in await plain.message_queues(on_wire.topic)
            assert await plain.committed(on_wire) == 1
            assert (await plain.pull(on_wire, 0)).messages[0].topic == on_wire.topic


async def found_by_id(admin: Admin, message: MessageExt) -> tuple[MessageExt, ...]:
    return (await admin.messages.by_unique_key(message.topic, message.msg_id)).messages
