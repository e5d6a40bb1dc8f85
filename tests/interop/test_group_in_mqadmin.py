"""The offsets that a `PullConsumer` commits, as RocketMQ's own tool shows them."""

from __future__ import annotations

import uuid

import trio

from pyrmq_core import Admin, Client, Message, MessageQueue, Producer, PullConsumer
from tests.support.apache import ApacheCluster


async def test_consumer_progress_shows_what_a_pull_consumer_commits(apache: ApacheCluster) -> None:
    """The group has a retry topic then, and no member: Java's members would leave a member's share unread."""
    topic, group = f"t_{uuid.uuid4().hex[:8]}", f"g_{uuid.uuid4().hex[:8]}"
    queue = MessageQueue(topic, "broker-b", 0)
    async with Client(nameserver=apache.nameserver.address) as client:
        async with Admin(client=client, timeout=20) as admin:
            await admin.create_topic(topic, queues=1)
        async with Producer("g", client=client, send_timeout=20) as producer:
            await producer.send_batch([Message(topic, b"%d" % number) for number in range(5)], queue=queue)
        async with PullConsumer(group, client=client, timeout=20) as consumer:
            assert len((await consumer.pull(queue, 0, wait=10)).messages) == 5
            await consumer.commit(queue, 3)
            printed = await trio.to_thread.run_sync(apache.mqadmin, "consumerProgress", "-g", group)
            members = await trio.to_thread.run_sync(apache.mqadmin, "consumerConnection", "-g", group)
    rows = [line.split() for line in printed.splitlines() if line.startswith(topic)]
    assert [row[:5] for row in rows] == [[topic, "broker-b", "0", "5", "3"]], printed
    assert "not online" in members
