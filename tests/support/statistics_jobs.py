"""The offsets in a topic's statistics against single requests, for every cluster; each job makes its own topics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from pyrmq_core import Admin, Client, Message, MessageQueue, OffsetRange, Producer, PullConsumer
from tests.support.waiting import until_readable


async def compare_with_single_requests(nameserver: str, *, is_old: bool = False) -> None:
    """Compares plain topics, one that shrinks, and, unless the broker is `is_old` (4.9), a batch topic."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    async with (
        Client(nameserver=nameserver) as client,
        Admin(client=client, timeout=20) as admin,
        Producer("setup", client=client, send_timeout=15) as producer,
        PullConsumer("readers", client=client, timeout=15) as consumer,
    ):
        await admin.create_topic(f"{name}_plain", queues=6)
        await admin.create_topic(f"{name}_shrinks", queues=8)
        kinds = ["plain", "shrinks"] if is_old else ["plain", "shrinks", "batch"]
        if not is_old:
            await admin.create_topic(f"{name}_batch", queues=6, batch=True)
        for topic in (f"{name}_{kind}" for kind in kinds):
            queues = await consumer.message_queues(topic)
            for number, queue in enumerate(queues[1::2]):  # every second one stays empty
                await producer.send_batch([Message(topic, b"x") for _ in range(number + 1)], queue=queue)
            await until_readable(nameserver, topic, sum(range(1, len(queues[1::2]) + 1)))
        await admin.create_topic(f"{name}_shrinks", queues=4, read_queues=8)
        for kind in kinds:
            topic = f"{name}_{kind}"
            queues = await consumer.message_queues(topic)
            statistics = await _statistics(consumer, queues)
            expected = queues
            if kind == "shrinks" and is_old:
                expected = tuple(queue for queue in queues if queue.queue_id < 4)
            assert statistics.keys() == set(expected), kind
            single = {queue: await _single(consumer, queue) for queue in queues}
            assert await consumer.offset_bounds(queues) == single, kind
            assert statistics == {queue: single[queue] for queue in expected}, kind
            await _compare_times(consumer, queues)
        await admin.delete_topic(f"{name}_plain")
        gone = [MessageQueue(f"{name}_plain", queue.broker_name, queue.queue_id) for queue in queues]
        assert await _statistics(consumer, gone) == {}
        assert await consumer.offset_bounds(gone) == {queue: await _single(consumer, queue) for queue in gone}


async def _statistics(consumer: PullConsumer, queues: Sequence[MessageQueue]) -> dict[MessageQueue, OffsetRange]:
    return await consumer._asking()._statistics.bounds(tuple(queues))


async def _compare_times(consumer: PullConsumer, queues: Sequence[MessageQueue]) -> None:
    """Compares the offsets of early, late and recent times with those of searches; some queues are never searched."""
    single, now = consumer._asking(), int(time.time() * 1000)
    for when in (0, now - 1000, now, now + 3_600_000):
        times = dict.fromkeys(queues, when)
        assert await consumer.offsets_at(times) == {queue: await single.offset_at(queue, when) for queue in queues}
    assert await single._statistics.ends_before(times)


async def _single(consumer: PullConsumer, queue: MessageQueue) -> OffsetRange:
    return OffsetRange(await consumer.min_offset(queue), await consumer.max_offset(queue))
