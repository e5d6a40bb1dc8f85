"""A push consumer that answers requests: `Producer.reply` takes the messages of its handler."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
import trio

from pyrmq_core import (
    Admin,
    Client,
    ConsumeFromWhere,
    ConsumeLater,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from tests.support.apache import ApacheCluster


@pytest.mark.parametrize("namespace", [None, "tenant"])
async def test_a_handler_answers_requests(apache: ApacheCluster, namespace: str | None) -> None:
    """At the first delivery, and at the second after the handler gave the message back: its properties stay."""
    number = uuid.uuid4().hex[:8]
    topic = f"t_{number}"
    deliveries: list[tuple[bytes, str, int]] = []
    async with (
        Client(nameserver=apache.nameserver.address) as client,
        Admin(client=client, namespace=namespace, timeout=20) as admin,
        Producer(f"asker_{number}", client=client, namespace=namespace, send_timeout=20) as asker,
        Producer(f"replier_{number}", client=client, namespace=namespace, send_timeout=20) as replier,
        PushConsumer(
            f"pricing_{number}",
            client=client,
            namespace=namespace,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        ) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def answer(messages: Sequence[MessageExt]) -> None:
            for message in messages:
                deliveries.append((message.body, message.topic, message.reconsume_times))
                if message.body == b"later" and not message.reconsume_times:
                    raise ConsumeLater(1)
                await replier.reply(message, b"reply to " + message.body, properties={"price": "42"}, timeout=15)

        await admin.create_topic(topic, queues=1)
        await consumer.subscribe(topic)
        nursery.start_soon(consumer.run, answer)
        for body in (b"now", b"later"):
            reply = await asker.request(Message(topic, body), timeout=60)
            assert (reply.body, reply.properties["price"]) == (b"reply to " + body, "42")
        await consumer.stop()
    assert deliveries == [(b"now", topic, 0), (b"later", topic, 0), (b"later", topic, 1)]
