"""Replies as requests of a stranger, and what a broker answers to each: the same on ours and on Apache's brokers."""

from __future__ import annotations

from pyrmq_core import Client, Message, MessageExt, Producer, PullConsumer
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.send_message import SendMessage

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
NOT_NAMED = "reply message properties[REPLY_TO_CLIENT] is null"
NOT_THERE = "push reply message fail, channel of <nobody> not found."


async def reply(
    client: Client, topic: str, queue_id: int, properties: str, body: bytes = b"x", broker: str = "broker-a"
) -> Command:
    """Returns a broker's answer to a reply."""
    request = SendMessage(
        producer_group="strangers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp_ms=1,
        flag=7,
        properties=properties,
        body=body,
    )
    address = client._session.routes.known_master(broker)
    assert address is not None
    return await client._session.call(address, request.to_reply_command(), timeout=20)


async def check_answers(client: Client, consumer: PullConsumer, topic: str, illegal_queue: int) -> None:
    """Compares the answers to replies for no client, for an unknown one, and for this one.

    `illegal_queue` is the code for a queue that the topic lacks, 29 in 5.x and 1 in 4.9.
    """
    await consumer.message_queues(REPLY_TOPIC)
    own = f"REPLY_TO_CLIENT\x01{client._session.client_id}\x02"
    async with Producer("askers", client=client, send_timeout=20) as producer:
        await producer.send(Message(topic, b"makes this client known to the broker"), timeout=20)
        for broker in client._session.routes.brokers:
            assert broker.master is not None
            await client._session.heartbeats.send_now(broker.master)
        for properties, code, remark in (
            ("k\x01v\x02", 1, NOT_NAMED),
            ("k\x01v\x02REPLY_TO_CLIENT\x01nobody\x02", 1, NOT_THERE),
            ("k\x01v\x02" + own, 0, None),
        ):
            for queue_id in (0, -1):
                answer = await reply(client, REPLY_TOPIC, queue_id, properties)
                assert (answer.code, answer.remark, answer.ext["queueId"]) == (code, remark, "0"), properties
                stored = await stored_reply(consumer, REPLY_TOPIC, answer)
                assert (stored.body, stored.flag, stored.properties["k"]) == (b"x", 7, "v")
                assert "PUSH_REPLY_TIME" not in stored.properties
                assert "CLUSTER" not in stored.properties
            answer = await reply(client, REPLY_TOPIC, 99, properties)
            assert answer.code == illegal_queue
            assert "request queueId[99] is illegal" in str(answer.remark)


async def stored_reply(consumer: PullConsumer, topic: str, answer: Command) -> MessageExt:
    """Returns the message at the place that the answer names."""
    queues = [queue for queue in await consumer.message_queues(topic) if queue.broker_name == "broker-a"]
    queue = next(queue for queue in queues if queue.queue_id == int(answer.ext["queueId"]))
    (message, *_) = (await consumer.pull(queue, int(answer.ext["queueOffset"]), wait=10)).messages
    assert message.offset_msg_id == answer.ext["msgId"]
    return message
