"""Lists of messages with sharding keys: each key in the queue of Java's producers, in its order, or nothing is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pyrmq_core import BatchFailed, Client, InvalidMessage, Message, MessageQueue, Producer
from tests.client.sends import A0
from tests.support.scripted import BATCH, refuse
from tests.support.stage import Stage


@pytest.fixture
async def producer(client: Client) -> AsyncIterator[Producer]:
    async with Producer("g", client=client, retry_times_when_send_failed=0) as producer:
        yield producer


def keyed(count: int, keys: int = 5, *, some_without: bool = False) -> list[Message]:
    return [
        Message(
            "orders",
            b"%d" % number,
            sharding_key=None if some_without and number % 3 == 0 else f"key-{number % keys}",
        )
        for number in range(count)
    ]


def stored_bodies(stage: Stage, queue: MessageQueue) -> list[int]:
    return [int(stored.body) for stored in stage.stores[queue.broker_name].queues["orders", queue.queue_id]]


@pytest.mark.parametrize("key", [f"key-{number}" for number in range(8)])
async def test_keys_that_agree_have_their_queue(stage: Stage, producer: Producer, key: str) -> None:
    queue = (await producer.publish_info("orders")).queue_of_key(key)
    results = await producer.send_batch([Message("orders", b"%d" % number, sharding_key=key) for number in range(10)])
    assert {result.message_queue for result in results} == {queue}
    assert stored_bodies(stage, queue) == list(range(10))
    assert len(stage.sends()) == 1


@pytest.mark.parametrize("some_without", [False, True])
async def test_keys_that_differ_have_a_request_for_each_queue(
    stage: Stage, producer: Producer, some_without: bool
) -> None:
    """The results stand in the order of the list."""
    messages = keyed(100, some_without=some_without)
    info = await producer.publish_info("orders")
    results = await producer.send_batch(messages)
    assert len(results) == 100
    queues = {}
    for message, result in zip(messages, results, strict=True):
        if message.sharding_key is not None:
            assert result.message_queue == info.queue_of_key(message.sharding_key)
            queues[message.sharding_key] = result.message_queue
        stored = stage.stores[result.message_queue.broker_name].queues["orders", result.message_queue.queue_id]
        assert stored[result.queue_offset].body == message.body
    for key, queue in queues.items():
        mine = {int(message.body) for message in messages if message.sharding_key == key}
        assert [number for number in stored_bodies(stage, queue) if number in mine] == sorted(mine)
    assert len(stage.sends()) == len(set(queues.values())) + some_without


async def test_a_queue_that_is_given_wins(stage: Stage, producer: Producer) -> None:
    results = await producer.send_batch(keyed(20), queue=A0)
    assert {result.message_queue for result in results} == {A0}
    assert stored_bodies(stage, A0) == list(range(20))


async def test_a_list_that_is_no_batch_is_refused_before_anything_is_sent(stage: Stage, producer: Producer) -> None:
    for wrong, reported in (
        (Message("audit", b"x", sharding_key="other"), "message 5 is for audit"),
        (Message("orders", b"x", sharding_key="other", delay_level=1), "message 5 of orders is"),
        (Message("orders", b"", sharding_key="other"), "empty"),
    ):
        with pytest.raises(InvalidMessage, match=reported):
            await producer.send_batch([*keyed(5), wrong])
    assert stage.sends() == []


async def test_a_queue_that_fails_is_reported_with_what_is_stored(stage: Stage, producer: Producer) -> None:
    """Later payloads of the queue are not sent."""
    info = await producer.publish_info("orders")
    messages = keyed(50)
    first = messages[0].sharding_key
    assert first is not None
    broken = {"broker-a": "broker-b", "broker-b": "broker-a"}[info.queue_of_key(first).broker_name]
    stage.brokers[broken].always(BATCH, refuse(13, "no"))
    with pytest.raises(BatchFailed, match=r"part \d of 5 of the batch failed: \d parts? stored") as caught:
        await producer.send_batch(messages)
    assert len(caught.value.parts) == len({info.queue_of_key(f"key-{number}") for number in range(5)})
