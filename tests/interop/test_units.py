"""Units and 5.x's namespaces against real servers of both releases, which accept their names."""

from __future__ import annotations

import uuid

from pyrmq_core import Client, Message, Producer, PullConsumer
from tests.support.apache import ApacheCluster
from tests.support.client_jobs import stored_in


async def test_sends_and_reads_of_a_unit_in_a_namespace(apache: ApacheCluster) -> None:
    topic = f"t_{uuid.uuid4().hex[:12]}"
    named = Client(nameserver=apache.nameserver.address, unit_name="east", unit_mode=True, namespace_v2="tenant")
    async with (
        named as client,
        Producer("g", client=client, send_timeout=15) as producer,
        PullConsumer("readers", client=client, timeout=15) as consumer,
    ):
        await producer.send(Message(topic, b"one"))
        await producer.send_batch([Message(topic, b"two"), Message(topic, b"three")])
        assert {message.body for message in await stored_in(consumer, topic, 3)} == {b"one", b"two", b"three"}
