"""Lite topics on 5.5.0: a program writes them on two brokers, and reads each one's queue by its own offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from pyrmq_core import Client, Message, Producer, PullConsumer
from pyrmq_core.client.admin.admin import Admin
from tests.support.apache import NEWEST, ApacheCluster, boot_cluster
from tests.support.commands import ended, started
from tests.support.maven import ApacheUnavailable

pytestmark = pytest.mark.soak
SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}
NAMES = [f"session-{number}" for number in range(6)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheCluster]:
    try:
        with boot_cluster(NEWEST, ("broker-a", "broker-b"), broker_settings=SETTINGS) as cluster:
            yield cluster
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


async def test_each_lite_topic_has_its_messages_in_order(
    cluster: ApacheCluster, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    nameserver = cluster.nameserver.address
    sent = [Message("orders", b"%d" % number, lite_topic=NAMES[number % 6]) for number in range(120)]
    async with Client(nameserver=nameserver) as client, Admin(client=client, timeout=30) as admin:
        await admin.create_topic("orders", queues=3, attributes={"message.type": "LITE", "lite.topic.expiration": "30"})
        async with (
            Producer("g", client=client, send_timeout=30) as producer,
            PullConsumer("g", client=client, timeout=30) as consumer,
        ):
            results = [await producer.send(message) for message in sent]
            for number, name in enumerate(NAMES):
                (queue,) = await consumer.message_queues("orders", name)
                assert {result.message_queue.broker_name for result in results[number::6]} == {queue.broker_name}
                with trio.fail_after(60):
                    while await consumer.max_offset(queue) < 20:  # noqa: ASYNC110 - the broker's dispatch sets no event
                        await trio.sleep(0.1)
                assert (await consumer.offset_bounds([queue]))[queue].end == 20
                async with consumer.read_arrow(queue, 3, 20, columns=["queueOffset", "body", "liteTopic"]) as batches:
                    rows = [row for batch in [batch async for batch in batches] for row in batch.to_pylist()]
                assert rows == [
                    {"queueOffset": offset, "body": b"%d" % (6 * offset + number), "liteTopic": name}
                    for offset in range(3, 20)
                ]
                pulled = await consumer.pull(queue, 18)
                assert ([message.queue_offset for message in pulled.messages], pulled.next_offset) == ([18, 19], 20)
            assert len({result.message_queue.broker_name for result in results}) == 2
    form = ("--lite-topic", NAMES[1], "-o", "{queueOffset} {body}")
    process = started("tail", "orders", "-n", nameserver, *form, home=tmp_path)
    status, output, errors = await trio.to_thread.run_sync(ended, process)
    assert (status, errors) == (0, [])
    assert output.splitlines() == [f"{offset} {6 * offset + 1}" for offset in range(20)]
    assert "stores messages for lite topics" not in caplog.text
