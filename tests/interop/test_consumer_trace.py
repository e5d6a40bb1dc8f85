"""A consumer's trace, as Java's reader and its administration tool understand it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import trio

from pyrmq_core import (
    Admin,
    Client,
    ConsumeFromWhere,
    ConsumeLater,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)
from tests.support.apache import ApacheCluster

READ_TRACES = Path(__file__).parent / "java" / "ReadTraces.java"


async def test_java_reads_our_records(apache: ApacheCluster) -> None:
    """One message is consumed at once, another is given back and consumed at its second delivery."""
    number = uuid.uuid4().hex[:8]
    topic, trace_topic, group = f"t_{number}", f"traces_{number}", f"audit_{number}"
    async with (
        Client(nameserver=apache.nameserver.address) as client,
        Admin(client=client, timeout=20) as admin,
        Producer("g", client=client, send_timeout=20) as producer,
        PushConsumer(
            group, client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, trace=trace_topic
        ) as consumer,
    ):
        await admin.create_topic(topic, queues=1)
        await admin.create_topic(trace_topic, queues=1)
        queue = MessageQueue(topic, "broker-a", 0)
        sent = [await producer.send(Message(topic, keys.encode(), keys=keys), queue=queue) for keys in ("one", "two")]

        async def handle(messages: Sequence[MessageExt]) -> None:
            (message,) = messages
            if message.body == b"two" and not message.reconsume_times:
                raise ConsumeLater(1)
            if message.body == b"two":
                await consumer.stop()

        await consumer.subscribe(topic)
        with trio.fail_after(60):
            await consumer.run(handle)
    first_id, second_id = (result.msg_id for result in sent)

    printed = await trio.to_thread.run_sync(apache.run_java, READ_TRACES, apache.nameserver.address, trace_topic)
    rows = [line.split()[1:] for line in printed.splitlines() if line.startswith("trace ")]
    assert sorted(row[3:6] for row in rows if row[0] == "SubBefore") == sorted(
        [[first_id, "one", "0"], [second_id, "two", "0"], [second_id, "two", "1"]]
    )
    assert sorted(row[3:5] + row[6:8] for row in rows if row[0] == "SubAfter") == sorted(
        [[first_id, "one", "true", "0"], [second_id, "two", "false", "4"], [second_id, "two", "true", "0"]]
    )
    assert {row[1] for row in rows} == {group}
    befores, afters = ([row[2:4] for row in rows if row[0] == kind] for kind in ("SubBefore", "SubAfter"))
    assert sorted(befores) == sorted(afters)  # by the id of the call
    assert len({request_id for request_id, _ in befores}) == 3
    shown = await _trace_by_id(apache, trace_topic, second_id)
    assert "Sub" in shown
    assert group in shown


async def _trace_by_id(apache: ApacheCluster, trace_topic: str, msg_id: str) -> str:
    with trio.fail_after(60):
        while True:  # each of its records is indexed some time after it is stored, at either broker
            shown = await trio.to_thread.run_sync(apache.mqadmin, "queryMsgTraceById", "-i", msg_id, "-t", trace_topic)
            if "failed" in shown:
                return shown
