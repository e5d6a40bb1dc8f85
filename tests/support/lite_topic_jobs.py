"""A program of lite topics for two brokers, Apache's of 5.5 or ours: writes them, and reads each by its own offsets."""

from __future__ import annotations

from datetime import UTC, datetime

import trio
from click.testing import CliRunner

from pyrmq_core import Client, Message, Producer, PullConsumer
from pyrmq_core.client.admin.admin import Admin
from pyrmq_core.tools.cli.commands import pyrmq

SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}
NAMES = [f"session-{number}" for number in range(6)]


def each_lite_topic_has_its_messages_in_order(nameserver: str) -> None:
    trio.run(_written_and_read, nameserver)
    form = ("--lite-topic", NAMES[1], "-o", "{queueOffset} {body}")
    shown = CliRunner().invoke(pyrmq, ["tail", "orders", "-n", nameserver, *form])
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.splitlines() == [f"{offset} {6 * offset + 1}" for offset in range(20)]


async def _written_and_read(nameserver: str) -> None:
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
                bounds = (await consumer.offset_bounds([queue]))[queue]
                assert (bounds.start, bounds.end) == (0, 20)
                assert await consumer.offset_at(queue, datetime(2000, 1, 1, tzinfo=UTC)) == 0
                await consumer.commit(queue, 7)
                assert await consumer.committed(queue) == 7
                async with consumer.read_arrow(queue, 3, 20, columns=["queueOffset", "body", "liteTopic"]) as batches:
                    rows = [row for batch in [batch async for batch in batches] for row in batch.to_pylist()]
                assert rows == [
                    {"queueOffset": offset, "body": b"%d" % (6 * offset + number), "liteTopic": name}
                    for offset in range(3, 20)
                ]
                pulled = await consumer.pull(queue, 18)
                assert ([message.queue_offset for message in pulled.messages], pulled.next_offset) == ([18, 19], 20)
            assert len({result.message_queue.broker_name for result in results}) == 2
