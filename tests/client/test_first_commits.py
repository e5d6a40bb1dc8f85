"""The first offsets of a group in a topic, at a broker that makes the group's table without a lock, as Java's do."""

from __future__ import annotations

import trio
import trio.testing

from pyrmq_core import MessageQueue, PullConsumer
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.testing import Command, EmbeddedCluster, Peer, RequestCode


async def test_no_first_commit_is_lost() -> None:
    tables: dict[str, dict[int, int]] = {}

    async def commit(request: Command, _peer: Peer) -> Command:
        """Does as ConsumerOffsetManager.commitOffset, with all requests between its look-up and its change."""
        header = UpdateConsumerOffset.from_command(request)
        offsets = tables.get(header.topic)
        await trio.testing.wait_all_tasks_blocked(0.01)
        if offsets is None:
            tables[header.topic] = {header.queue_id: header.commit_offset}
        else:
            offsets[header.queue_id] = header.commit_offset
        return Command(0)

    async with EmbeddedCluster(brokers=1, topics={"orders": 4, "bills": 2}) as cluster:
        rule = cluster.control(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        async with PullConsumer("audit", nameserver=cluster.nameserver) as consumer:
            queues = [*await consumer.message_queues("orders"), *await consumer.message_queues("bills")]
            assert MessageQueue("orders", "broker-a", 3) in queues
            await consumer.commit_offsets(dict.fromkeys(queues, 5))
            await consumer.commit_offsets(dict.fromkeys(queues[:2], 6))
    assert tables == {"orders": {0: 6, 1: 6, 2: 5, 3: 5}, "bills": {0: 5, 1: 5}}
    assert len(rule.seen) == 8
