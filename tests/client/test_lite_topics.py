"""Messages of lite topics go alone to the broker that RocketMQ's hash chooses, and a warning says what that lacks."""

from __future__ import annotations

import json
import logging

import pytest

from pyrmq_core import Client, Message, Producer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import refusal, success
from pyrmq_core.protocol.java.string_hash import consistent_bucket, string_hash_code
from tests.support.scripted import ScriptedServer
from tests.support.stage import Stage

NAMES = [f"session-{number}" for number in range(40)]


def answer(server: ScriptedServer, settings: str, kind: str) -> None:
    topic = {"topicName": "orders", "attributes": {"message.type": kind}}
    server.always(RequestCode.GET_BROKER_CONFIG, lambda *_: success(body=settings.encode()))
    server.always(RequestCode.GET_TOPIC_CONFIG, lambda *_: success(body=json.dumps(topic).encode()))


@pytest.mark.parametrize("batching", [False, True])
async def test_the_hash_chooses_the_queue(stage: Stage, client: Client, batching: bool) -> None:
    async with Producer("g", client=client, batching=batching) as producer:
        queues = await producer.message_queues("orders")
        pendings = [await producer.send_soon(Message("orders", b"x", lite_topic=name)) for name in NAMES]
        chosen = [(await pending.wait()).message_queue for pending in pendings]
        chosen += [(await producer.send(Message("orders", b"x", lite_topic=name))).message_queue for name in NAMES]
    assert len({queue.broker_name for queue in queues}) == 2
    assert chosen == [queues[consistent_bucket(string_hash_code(name), len(queues))] for name in NAMES] * 2
    assert [sent.batch for _, sent in stage.sends()] == [False] * 80


async def test_a_broker_without_lite_topics_is_named_once(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    answer(stage.brokers["broker-a"], "enableLmq=false\nenableMultiDispatch=true\n", "NORMAL")
    answer(stage.brokers["broker-b"], "enableLmq=true\nenableMultiDispatch=true\n", "LITE")
    with caplog.at_level(logging.WARNING):
        async with Producer("g", client=client) as producer:
            for name in NAMES:
                await producer.send(Message("orders", b"x", lite_topic=name))
    assert {name for name, _ in stage.sends()} == {"broker-a", "broker-b"}
    (record,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    text = record.getMessage()
    assert text.startswith(f"broker-a ({stage.addresses['broker-a']}) stores messages for lite topics of orders, but")
    assert text.endswith("without enableLmq=true and the topic's type LITE (pyrmq topic create --type lite)")
    assert [len(server.of(RequestCode.GET_BROKER_CONFIG)) for server in stage.brokers.values()] == [1, 1]


async def test_a_broker_that_does_not_say_is_believed(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for server in stage.brokers.values():
        server.always(RequestCode.GET_BROKER_CONFIG, lambda *_: refusal(ResponseCode.NO_PERMISSION, "no"))
        server.always(RequestCode.GET_TOPIC_CONFIG, lambda *_: success(body=b"not JSON"))
    async with Producer("g", client=client) as producer:
        for name in NAMES:
            await producer.send(Message("orders", b"x", lite_topic=name))
    assert len(stage.sends()) == len(NAMES)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
