"""Messages of lite topics go alone to the broker that RocketMQ's hash chooses, and a warning says what that lacks.

A consumer reads a lite topic's queue at that broker, by the offsets of this queue.
"""

from __future__ import annotations

import json
import logging

import pytest

from pyrmq_core import Client, Message, Producer, PullConsumer
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.string_hash import consistent_bucket, string_hash_code
from pyrmq_core.protocol.requests.broker.offsets import OffsetFound
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from tests.columnar.stored import record
from tests.support.lite_topic_jobs import SETTINGS, each_lite_topic_has_its_messages_in_order
from tests.support.scripted import ScriptedServer, cut
from tests.support.stage import Stage

NAMES = [f"session-{number}" for number in range(40)]


def answer(server: ScriptedServer, settings: str, kind: str) -> None:
    topic = {"topicName": "orders", "attributes": {"message.type": kind}}
    server.always(RequestCode.GET_BROKER_CONFIG, lambda *_: success(body=settings.encode()))
    server.always(RequestCode.GET_TOPIC_CONFIG, lambda *_: success(body=json.dumps(topic).encode()))


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name.endswith("queue_selection")]


@pytest.mark.parametrize("batching", [False, True])
async def test_the_hash_chooses_the_queue(stage: Stage, client: Client, batching: bool) -> None:
    async with Producer("g", client=client, batching=batching, send_timeout=60) as producer:
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
        async with Producer("g", client=client, send_timeout=60) as producer:
            for name in NAMES:
                await producer.send(Message("orders", b"x", lite_topic=name))
    assert {name for name, _ in stage.sends()} == {"broker-a", "broker-b"}
    (record,) = warnings_of(caplog)
    text = record.getMessage()
    assert text.startswith(f"broker-a ({stage.addresses['broker-a']}) stores messages for lite topics of orders, but")
    assert text.endswith("without enableLmq=true and the topic's type LITE (pyrmq topic create --type lite)")
    assert [len(server.of(RequestCode.GET_BROKER_CONFIG)) for server in stage.brokers.values()] == [1, 1]


async def test_a_broker_that_gave_no_answer_is_asked_again(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The second send of each broker warns, and a third one asks no more."""
    for server in stage.brokers.values():
        answer(server, "enableLmq=false\nenableMultiDispatch=true\n", "LITE")
        server.on(RequestCode.GET_BROKER_CONFIG, cut)
    async with Producer("g", client=client, send_timeout=60) as producer:
        for name in NAMES:
            await producer.send(Message("orders", b"x", lite_topic=name))
    assert [len(server.of(RequestCode.GET_BROKER_CONFIG)) for server in stage.brokers.values()] == [2, 2]
    assert len(warnings_of(caplog)) == 2


async def test_a_broker_that_does_not_say_is_believed(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for server in stage.brokers.values():
        server.always(RequestCode.GET_BROKER_CONFIG, lambda *_: refusal(ResponseCode.NO_PERMISSION, "no"))
        server.always(RequestCode.GET_TOPIC_CONFIG, lambda *_: success(body=b"not JSON"))
    async with Producer("g", client=client, send_timeout=60) as producer:
        for name in NAMES:
            await producer.send(Message("orders", b"x", lite_topic=name))
    assert len(stage.sends()) == len(NAMES)
    assert not warnings_of(caplog)


@pytest.mark.parametrize("namespace", [None, "ns"])
async def test_a_queue_is_read_by_its_own_offsets(stage: Stage, client: Client, namespace: str | None) -> None:
    """The records say the offsets 7 to 12 of their parent's queues."""
    parent = "orders" if namespace is None else "ns%orders"
    stage.topic(parent)
    lite_queue = f"%LMQ%${parent}$session-1"
    places = "INNER_MULTI_DISPATCH\x01{}\x02INNER_MULTI_QUEUE_OFFSET\x01{}\x02"
    records = [record(7 + n, topic=parent, properties=places.format(lite_queue, n)) for n in range(6)]

    def pulled(request: Command, peer: Peer) -> Command:
        asked = PullMessage.from_command(request)
        assert (asked.topic, asked.queue_id) == (lite_queue, 0)
        upto = min(6, asked.queue_offset + 2)
        return PullAnswer(0, None, upto, 6, 0, records=b"".join(records[asked.queue_offset : upto])).to_command()

    for server in stage.brokers.values():
        server.always(RequestCode.PULL_MESSAGE, pulled)
        server.always(RequestCode.GET_MAX_OFFSET, lambda *_: OffsetFound(6).to_command())
        server.always(RequestCode.GET_MIN_OFFSET, lambda *_: OffsetFound(0).to_command())
    async with PullConsumer("g", client=client, namespace=namespace) as consumer:
        (queue,) = await consumer.message_queues("orders", "session-1")
        parent_queues = await consumer.message_queues("orders")
        places_of_names = [(await consumer.message_queues("orders", name))[0].broker_name for name in NAMES]
        bounds = (await consumer.offset_bounds([queue]))[queue]
        once = await consumer.pull(queue, 4)
        async with consumer.read_arrow(queue, 0, 6, columns=["queueOffset", "topic"]) as batches:
            rows = [row for batch in [batch async for batch in batches] for row in batch.to_pylist()]
    buckets = [consistent_bucket(string_hash_code(name), len(parent_queues)) for name in NAMES]
    assert places_of_names == [parent_queues[bucket].broker_name for bucket in buckets]
    assert queue.queue_id == 0
    assert (bounds.start, bounds.end) == (0, 6)
    assert [(message.topic, message.queue_offset) for message in once.messages] == [("orders", 4), ("orders", 5)]
    assert rows == [{"queueOffset": offset, "topic": "orders"} for offset in range(6)]


def test_each_lite_topic_of_our_brokers_has_its_messages_in_order(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(brokers=2, settings=SETTINGS) as cluster:
        each_lite_topic_has_its_messages_in_order(cluster.nameserver)
    assert "stores messages for lite topics" not in caplog.text
