"""Lists whose results come later: the same parts and errors as `send_batch`, in the room of `send_soon`."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    BatchFailed,
    Client,
    InvalidMessage,
    Message,
    MessageQueue,
    NoRoute,
    Outcome,
    PendingBatch,
    Producer,
    SendFailed,
    WindowFull,
    blocking,
)
from pyrmq_core.client.producer.bulk.batch_sends import _most_waits
from pyrmq_core.client.producer.message_encoder import MessageEncoder
from pyrmq_core.protocol.messages.batch_payloads import checked_batch
from tests.support.scripted import BATCH, after, later, refuse, silence
from tests.support.stage import Stage

B3 = MessageQueue("orders", "broker-b", 3)


def messages(count: int, size: int = 1, **more: Any) -> list[Message]:
    return [Message("orders", b"%d" % number + b"x" * size, **more) for number in range(count)]


async def test_results_come_later(stage: Stage, client: Client) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(BATCH, after(release, stage.stores[name]))
    ended: list[PendingBatch] = []
    async with Producer("g", client=client) as producer:
        pending = await producer.send_batch_soon(messages(100), queue=B3)
        assert not pending.is_done
        pending.add_done_callback(ended.append)
        release.set()
        results = await pending.wait()
    assert [result.queue_offset for result in results] == list(range(100))
    assert {result.message_queue for result in results} == {B3}
    assert pending.error is None
    assert pending.result is results
    assert ended == [pending]


async def test_a_list_is_what_was_given(stage: Stage, client: Client) -> None:
    """The caller may go on with its list."""
    given = messages(3)
    async with Producer("g", client=client) as producer:
        pending = await producer.send_batch_soon(given)
        given.clear()
        assert len(await pending.wait()) == 3


async def test_the_same_parts_as_send_batch(stage: Stage, client: Client) -> None:
    given = [Message("orders", b"%d" % number, sharding_key=f"k{number % 5}") for number in range(50)]
    async with Producer("g", client=client) as producer:
        now = await producer.send_batch(given)
        soon = await (await producer.send_batch_soon(given)).wait()
    assert [result.message_queue for result in soon] == [result.message_queue for result in now]


async def test_a_part_that_fails(stage: Stage, client: Client) -> None:
    broker = stage.brokers["broker-b"]
    broker.on(BATCH, stage.stores["broker-b"], refuse(13))
    async with Producer("g", client=client) as producer:
        pending = await producer.send_batch_soon(messages(400, size=10_000), queue=B3)
        with pytest.raises(BatchFailed, match=r"part 2 of 4 of the batch failed: 1 parts stored") as caught:
            await pending.wait()
    assert pending.error is caught.value
    assert [isinstance(part, Exception) for part in caught.value.parts] == [False, True, True, True]


async def test_what_a_broker_answers_is_final(stage: Stage, client: Client) -> None:
    """Java does the same in its async send; `send_batch` tries another broker."""
    for server in stage.brokers.values():
        server.always(BATCH, refuse(14))
    async with Producer("g", client=client) as producer:
        with pytest.raises(SendFailed) as caught:
            await (await producer.send_batch_soon(messages(2))).wait()
    assert len(caught.value.attempts) == 1


async def test_a_wrong_list_is_refused_at_the_call(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client, max_in_flight=1) as producer:
        for wrong in (
            [],
            [Message("orders", b"")],
            [Message("orders", b"x"), Message("bills", b"x")],
            [Message("orders", b"x"), Message("orders", b"x", tags="")],
            [Message("orders", b"x"), Message("orders", b"x", properties={"a": "y" * 40_000})],
        ):
            with pytest.raises(InvalidMessage):
                await producer.send_batch_soon(wrong)
        pending = await producer.send_batch_soon([Message("unheard", b"x")])  # and its room is free again
        with pytest.raises(NoRoute):
            await pending.wait()
        await (await producer.send_batch_soon(messages(1))).wait()
    assert len(stage.sends()) == 1


async def test_lists_share_the_room_of_messages(stage: Stage, client: Client) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(BATCH, after(release, stage.stores[name]))
    async with Producer("g", client=client, max_in_flight_bytes=1000) as producer:
        pending = await producer.send_batch_soon(messages(9, size=100))
        with pytest.raises(WindowFull):
            await producer.send_batch_soon(messages(2, size=100), wait=False)
        with pytest.raises(WindowFull):
            await producer.send_soon(Message("orders", b"x" * 200), wait=False)
        release.set()
        await pending.wait()
        await (await producer.send_soon(Message("orders", b"x" * 200), wait=False)).wait()


async def test_leaving_waits_for_lists(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        pending = [await producer.send_batch_soon(messages(10)) for _ in range(5)]
    assert all(batch.is_done and batch.error is None for batch in pending)
    assert len(stage.stored("orders")) == 50


async def test_leaving_waits_as_long_as_lists_may_take(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    for name, server in stage.brokers.items():
        server.always(BATCH, later(15, stage.stores[name]))  # each of three tries has 20 s
    async with Producer("g", client=client) as producer:
        pending = await producer.send_batch_soon(messages(10), timeout=60)
    assert len(await pending.wait()) == 10


@pytest.mark.parametrize(
    "batch",
    [
        messages(400, size=600_000 // 40, properties={"p": "x" * 30_000}),
        messages(200, properties={"p": "\u65e5" * 10_000}),
        messages(10, size=600_000),
        messages(10_000),
    ],
    ids=["properties", "wide characters", "large bodies", "many"],
)
def test_the_time_for_a_list_covers_each_of_its_requests(batch: list[Message]) -> None:
    encoding, checked = MessageEncoder.of(4096, "none", 4 * 1024 * 1024, None), checked_batch(batch)
    assert _most_waits(checked) >= 2 + len(list(encoding.batch(checked)))


async def test_a_cancelled_block_abandons_lists(stage: Stage, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(BATCH, silence)
    with trio.CancelScope() as scope:
        async with Producer("g", client=client) as producer:
            pending = await producer.send_batch_soon(messages(10))
            scope.cancel()
            await trio.sleep_forever()
    with pytest.raises(SendFailed, match="the producer was closed") as caught:
        await pending.wait()
    assert caught.value.outcome is Outcome.PERHAPS_STORED


async def test_silence_ends_in_time(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    for server in stage.brokers.values():
        server.always(BATCH, silence)
    async with Producer("g", client=client) as producer:
        began = trio.current_time()
        pending = await producer.send_batch_soon(messages(3000, size=1000), timeout=5)
    assert pending.error is not None
    assert trio.current_time() - began < 6


def test_the_blocking_face_gives_a_future() -> None:
    with blocking.EmbeddedCluster() as cluster, blocking.Producer("g", nameserver=cluster.nameserver) as producer:
        future = producer.send_batch_soon(messages(10))
        assert isinstance(future, Future)
        results = future.result(timeout=10)
        assert [result.queue_offset for result in results] == list(range(10))
        with pytest.raises(InvalidMessage):
            producer.send_batch_soon([Message("orders", b"")])
        last = [producer.send_batch_soon(messages(5)) for _ in range(20)]
    assert all(len(batch.result(timeout=0)) == 5 for batch in last)  # closing waited for them
