"""A topic that shrank while its route was kept: a send refused for its queue goes to an existing queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable

import pyarrow as pa
import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    AnyQueue,
    Client,
    FaultLatencySettings,
    KeyedQueue,
    Message,
    MessageQueue,
    Payload,
    Producer,
    QueueNotFound,
    SendFailed,
    ThisQueue,
    encode_batch,
)
from pyrmq_core.client.producer.send.fault_latency import judged
from pyrmq_core.client.producer.send.send_options import CommunicationMode, Target
from pyrmq_core.errors import ResponseError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from tests.support.scripted import BATCH, SEND, topics_asked
from tests.support.stage import Stage, staged

GONE = MessageQueue("orders", "broker-a", 7)


@pytest.fixture(params=[29, 1], ids=["5.x", "4.9"])
async def shrinking(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """One broker that has 8 queues in the route, and 1 in truth; `heard` corrects the route."""
    async with staged("broker-a") as stage:
        stage.topic("orders", queues=8)

        def step(command: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
            queue_id = SendMessage.from_command(command).queue_id
            if queue_id > 0:
                return refusal(request.param, f"request queueId[{queue_id}] is illegal, TopicConfig [...]")
            return stage.stores["broker-a"](command, peer)

        for code in (SEND, BATCH):
            stage.brokers["broker-a"].always(code, step)
        yield stage


@pytest.fixture
async def producer(shrinking: Stage) -> AsyncIterator[Producer]:
    """A producer that knows the old route, and tries once."""
    nameserver = shrinking.nameserver.address
    async with Producer(
        "g", nameserver=nameserver, retry_times_when_send_failed=0, retry_times_when_send_async_failed=0
    ) as producer:
        assert len(await producer.message_queues("orders")) == 8
        yield producer


def heard(stage: Stage) -> None:
    stage.topic("orders", queues=1)


def batch(*bodies: bytes) -> Payload:
    return encode_batch(
        [Message("orders", body) for body in bodies], [f"{number:032X}" for number in range(len(bodies))]
    )


async def test_sends_in_turn_find_the_queue_that_is_left(shrinking: Stage, producer: Producer) -> None:
    heard(shrinking)
    results = [await producer.send(Message("orders", b"%d" % number)) for number in range(8)]
    assert {result.message_queue.queue_id for result in results} == {0}
    assert len(shrinking.stored("orders")) == 8
    assert len(topics_asked(shrinking.nameserver)) == 2


async def test_a_send_in_the_background_finds_it_too(shrinking: Stage, producer: Producer) -> None:
    heard(shrinking)
    pending = [await producer.send_soon(Message("orders", b"%d" % number)) for number in range(50)]
    assert {(await send.wait()).message_queue.queue_id for send in pending} == {0}
    results = await producer.send_batch([Message("orders", b"%d" % number) for number in range(50)])
    assert {result.message_queue.queue_id for result in results} == {0}
    assert len(shrinking.stored("orders")) == 100


async def test_a_keys_queue_is_that_of_the_new_route(shrinking: Stage, producer: Producer) -> None:
    heard(shrinking)
    for number in range(8):
        result = await producer.send(Message("orders", b"x", sharding_key=f"key {number}"))
        assert result.message_queue.queue_id == 0


@pytest.mark.parametrize("keyed", [True, False])
async def test_no_row_of_a_record_batch_is_lost_and_a_key_keeps_its_order(
    shrinking: Stage, producer: Producer, keyed: bool
) -> None:
    heard(shrinking)
    bodies = pa.array([b"%d %d" % (number % 10, number) for number in range(5000)], pa.binary())
    columns = {"body": bodies} | ({"shardingKey": [f"key {number % 10}" for number in range(5000)]} if keyed else {})
    summary = await producer.send_arrow(pa.record_batch(columns), topic="orders")
    assert (summary.messages, summary.perhaps_repeated) == (5000, 0)
    stored = [message.body.split() for message in shrinking.stored("orders")]
    assert len(stored) == 5000
    for key in {key for key, _ in stored} if keyed else ():
        numbers = [int(number) for other, number in stored if other == key]
        assert numbers == sorted(numbers)


async def test_the_queue_that_a_lane_was_moved_to_is_kept(shrinking: Stage, producer: Producer) -> None:
    """One refusal a lane, not one a request."""
    heard(shrinking)
    lane = KeyedQueue("key", (GONE,))
    async with producer.open_window() as window:
        for number in range(10):
            await window.put(batch(b"%d" % number), lane)
        summary = await window.drain()
    assert (summary.messages, summary.retries) == (10, 1)
    assert [message.body for message in shrinking.stored("orders")] == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("to", [AnyQueue(), AnyQueue(GONE), AnyQueue(GONE, keep=True), KeyedQueue("key", (GONE,))])
async def test_a_refused_queue_is_no_refused_message(shrinking: Stage, producer: Producer, to: Target) -> None:
    heard(shrinking)
    async with producer.open_window(keep_refused=True) as window:
        for number in range(20):
            await window.put(batch(*[b"%d" % number] * 5), to)
        summary = await window.drain()
        assert window.take_refused() == []
    assert summary.messages == 100


async def test_a_change_that_nameservers_have_not_heard_of_is_waited_for(
    shrinking: Stage, producer: Producer, jumping_clock: MockClock
) -> None:
    shrinking_at = trio.current_time() + 2
    async with trio.open_nursery() as nursery:

        async def hear() -> None:
            await trio.sleep_until(shrinking_at)
            heard(shrinking)

        nursery.start_soon(hear)
        result = await producer.send(Message("orders", b"x", sharding_key="b"), timeout=10)
    assert result.message_queue.queue_id == 0
    assert trio.current_time() >= shrinking_at
    assert len(topics_asked(shrinking.nameserver)) < 10


async def test_it_is_waited_for_until_the_deadline_and_is_no_refused_message(
    shrinking: Stage, producer: Producer, jumping_clock: MockClock
) -> None:
    began = trio.current_time()
    async with producer.open_window(keep_refused=True, timeout=5) as window:
        await window.put(batch(b"x"), KeyedQueue("key", (GONE,)))
        with pytest.raises(SendFailed, match="queueId"):
            await window.drain()
        assert window.take_refused() == []
    assert trio.current_time() - began == pytest.approx(5, abs=1)


@pytest.mark.parametrize("wait", [True, False])
async def test_a_queue_that_the_caller_names_is_never_another(shrinking: Stage, producer: Producer, wait: bool) -> None:
    heard(shrinking)
    async with producer.open_window(keep_refused=True) as window:
        await window.put(batch(b"x", b"y"), ThisQueue(GONE, wait=wait))
        with pytest.raises(QueueNotFound, match=r"no queue 7 on broker-a; by the route .* it has 0 to 0 there"):
            await window.drain()
        assert window.take_refused() == []
    assert len(shrinking.sends()) == 1
    assert len(topics_asked(shrinking.nameserver)) == 2


async def test_the_broker_of_a_named_queue_is_waited_for(
    shrinking: Stage, producer: Producer, jumping_clock: MockClock
) -> None:
    await shrinking.brokers["broker-a"].stop()
    async with trio.open_nursery() as nursery:

        async def start() -> None:
            await trio.sleep(3)
            await shrinking.brokers["broker-a"].start()

        nursery.start_soon(start)
        async with producer.open_window(timeout=20) as window:
            await window.put(batch(b"x"), ThisQueue(MessageQueue("orders", "broker-a", 0), wait=True))
            assert (await window.drain()).messages == 1


def test_a_broker_that_refuses_a_queue_is_not_a_failing_one() -> None:
    refused = ResponseError("x", code=29, remark="request queueId[7] is illegal")
    assert judged(refused, CommunicationMode.SYNC, detector=False) == (False, True)


async def test_it_is_not_kept_away_from(shrinking: Stage) -> None:
    async with (
        Client(nameserver=shrinking.nameserver.address) as client,
        Producer("g", client=client, send_latency_fault_enable=True, fault_latency=FaultLatencySettings()) as producer,
    ):
        await producer.message_queues("orders")
        heard(shrinking)
        results = [await producer.send(Message("orders", b"x")) for _ in range(8)]
    assert {result.message_queue.queue_id for result in results} == {0}
