"""Numbered messages for the queues of one topic, sent steadily while members of a group come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

import trio

from pyrmq_core import Admin, Message, MessageQueue, Producer, PullConsumer, RocketMQError
from tests.support.groups.records import Place


@asynccontextmanager
async def sending(nameserver: str, queues: Sequence[MessageQueue], rate: float) -> AsyncIterator[dict[Place, str]]:
    """Sends to each queue in turn for the time of the block; yields the ids of stored messages by their places."""
    sent: dict[Place, str] = {}

    async def run(producer: Producer) -> None:
        for number in count():
            queue = queues[number % len(queues)]
            try:
                result = await producer.send(Message(queue.topic, str(number).encode()), queue=queue, timeout=5)
                sent[result.message_queue, result.queue_offset] = result.msg_id
            except RocketMQError:
                pass  # perhaps stored all the same
            await trio.sleep(1 / rate)

    async with Producer("senders", nameserver=nameserver, send_timeout=20) as producer, trio.open_nursery() as nursery:
        nursery.start_soon(run, producer)
        yield sent
        nursery.cancel_scope.cancel()


async def made_queues(nameserver: str, topic: str) -> Sequence[MessageQueue]:
    """Creates the topic with four queues at each broker, and returns them."""
    async with Admin(nameserver=nameserver, timeout=20) as admin:
        await admin.create_topic(topic, queues=4)
    async with PullConsumer("setup", nameserver=nameserver, timeout=20) as consumer:
        return await consumer.message_queues(topic)
