"""Automatic batching: the messages that travel together or alone, when they leave, and each one's result."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    Batching,
    Client,
    InvalidArgument,
    InvalidMessage,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    Outcome,
    Producer,
    SendFailed,
    WindowFull,
)
from pyrmq_core.client.producer.bulk.pending_sends import PendingSend
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.properties import decode_properties
from tests.support.scripted import BATCH, SEND, cut, refuse, silence
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)


def batch_sizes(stage: Stage) -> list[int]:
    """Returns the number of messages in each request."""
    return sorted(len(list(iterate_batch_body(sent.body))) if sent.batch else 1 for _, sent in stage.sends())


async def soon(producer: Producer, *messages: Message) -> list[PendingSend]:
    return [await producer.send_soon(message) for message in messages]


async def test_what_comes_together_travels_together(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    async with Producer("g", client=client, batching=True) as producer:
        pendings = await soon(
            producer, *(Message("orders", b"%d" % number, tags="t", keys=str(number)) for number in range(20))
        )
        results = [await pending.wait() for pending in pendings]
    assert batch_sizes(stage) == [20]
    assert [result.queue_offset for result in results] == list(range(20))
    assert len({result.message_queue for result in results}) == 1
    stored = stage.stored("orders")
    assert [message.unique_id for message in stored] == [result.msg_id for result in results]
    assert [message.body for message in stored] == [b"%d" % number for number in range(20)]
    assert [decode_properties(message.properties)["KEYS"] for message in stored] == [str(n) for n in range(20)]
    assert len({result.offset_msg_id for result in results}) == 20


async def test_messages_that_alternate_fill_two_batches(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    async with Producer("g", client=client, batching=Batching(max_bytes=1000, max_delay=20)) as producer:
        await producer.publish_info("orders")
        await soon(producer, *(Message("orders", b"x" * 100, tags=tag) for _ in range(7) for tag in ("a", "b")))
    assert batch_sizes(stage) == [1, 1, 6, 6]
    assert sorted(decode_properties(message.properties)["TAGS"] for message in stage.stored("orders")) == [
        *(["a"] * 7 + ["b"] * 7)
    ]


@pytest.mark.parametrize(("batching", "least", "most"), [(True, 4, 8), (False, 20, 24)])
async def test_a_caller_that_has_room_lets_others_run(
    client: Client, stage: Stage, batching: bool, least: int, most: int
) -> None:
    turns, done = 0, False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with Producer("g", client=client, batching=batching, max_in_flight=2_000) as producer:
        await producer.publish_info("orders")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await soon(producer, *[Message("orders", b"x")] * 1_400)
            done = True
    # One at each checkpoint; the caller may end the count before the last one's.
    assert least <= turns <= most


async def test_reading_results_that_are_there_lets_others_run(client: Client, stage: Stage) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with Producer("g", client=client, batching=True) as producer:
        pendings = await soon(producer, *[Message("orders", b"x")] * 320)
        await pendings[-1].wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for pending in pendings:
                await pending.wait()
            assert 10 <= turns <= 100
            with trio.CancelScope() as scope:
                scope.cancel()
                await pendings[0].wait()
            assert scope.cancelled_caught
            nursery.cancel_scope.cancel()


async def test_a_batch_leaves_when_it_is_old(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    async with Producer("g", client=client, batching=Batching(max_delay=2.0)) as producer:
        await producer.publish_info("orders")
        began = trio.current_time()
        pendings = await soon(producer, Message("orders", b"1"), Message("orders", b"2"))
        for pending in pendings:
            await pending.wait()
        assert trio.current_time() - began == pytest.approx(2.0, abs=0.1)
    assert batch_sizes(stage) == [2]


async def test_a_batch_leaves_when_it_is_full(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    """Long before its time; the rest waits for its own."""
    async with Producer("g", client=client, batching=Batching(max_bytes=1000, max_delay=20)) as producer:
        await producer.publish_info("orders")
        began = trio.current_time()
        pendings = await soon(producer, *[Message("orders", b"x" * 100)] * 8)
        await pendings[0].wait()
        assert trio.current_time() - began < 1
        assert not pendings[7].is_done
        await pendings[7].wait()
        assert trio.current_time() - began >= 19
    assert batch_sizes(stage) == [2, 6]


async def test_one_alone_is_no_batch(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client, batching=True) as producer:
        result = await producer.send(Message("orders", b"x", flag=7))
    ((_, sent),) = stage.sends()
    assert not sent.batch
    assert sent.flag == 7
    assert decode_properties(sent.properties or "")["UNIQ_KEY"] == result.msg_id


@pytest.mark.parametrize(
    ("first", "second", "requests"),
    [
        (Message("orders", b"1"), Message("orders", b"2"), 1),
        (Message("orders", b"1"), Message("bills", b"2"), 2),
        (Message("orders", b"1", tags="a"), Message("orders", b"2", tags="b"), 2),
        (Message("orders", b"1", tags="a"), Message("orders", b"2", tags="a"), 1),
        (Message("orders", b"1"), Message("orders", b"2", wait_store_msg_ok=False), 2),
        (Message("orders", b"1", wait_store_msg_ok=False), Message("orders", b"2", wait_store_msg_ok=False), 1),
        (Message("orders", b"1", sharding_key="a"), Message("orders", b"2", sharding_key="a"), 1),
        (Message("orders", b"1", sharding_key="a"), Message("orders", b"2", sharding_key="b"), 2),
        (Message("orders", b"1", flag=1, keys="k"), Message("orders", b"2", flag=2), 1),
    ],
)
async def test_what_may_share_a_request(
    stage: Stage, client: Client, jumping_clock: MockClock, first: Message, second: Message, requests: int
) -> None:
    stage.topic("bills")
    async with Producer("g", client=client, batching=True) as producer:
        for pending in await soon(producer, first, second):
            await pending.wait()
    assert len(stage.sends()) == requests


async def test_a_given_queue_is_kept(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    async with Producer("g", client=client, batching=Batching(max_delay=1)) as producer:
        pendings = [await producer.send_soon(Message("orders", b"x"), queue=A0) for _ in range(3)]
        pendings += [await producer.send_soon(Message("orders", b"x"), select=lambda queues, _: queues[0])]
        for pending in pendings:
            assert (await pending.wait()).message_queue == A0
    assert batch_sizes(stage) == [4]


class Listener:
    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


async def test_what_goes_alone(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    """Delayed, compressed, transactional and large messages, those to retry topics, and any with its own timeout."""
    stage.topic("%RETRY%g")
    batching = Batching(max_bytes=3000, max_delay=5)
    async with Producer("g", client=client, batching=batching, transaction_listener=Listener()) as producer:
        await producer.publish_info("orders")
        began = trio.current_time()
        await producer.send(Message("orders", b"x", delay_level=1))
        await producer.send(Message("orders", b"x", delay=timedelta(hours=1)))
        await producer.send(Message("orders", b"x" * 5000))
        await producer.send(Message("orders", b"x" * 3001))
        await producer.send(Message("%RETRY%g", b"x"))
        await producer.send(Message("orders", b"x"), timeout=2)
        await (await producer.send_soon(Message("orders", b"x"), timeout=2)).wait()
        await producer.begin_transaction(Message("orders", b"x"))
        await producer.send_oneway(Message("orders", b"x"))
        assert trio.current_time() - began < 3
    assert not any(sent.batch for _, sent in stage.sends())


async def test_a_wrong_message_is_reported_at_once(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client, batching=True) as producer:
        good = await producer.send_soon(Message("orders", b"x"))
        with pytest.raises(InvalidMessage):
            await producer.send_soon(Message("orders", b""))
        await good.wait()


@pytest.mark.parametrize("step", [refuse(13, "no"), cut])
async def test_a_batch_fails_as_a_whole(stage: Stage, client: Client, jumping_clock: MockClock, step: object) -> None:
    for server in stage.brokers.values():
        server.always(BATCH, step)  # type: ignore[arg-type]
    async with Producer("g", client=client, batching=True) as producer:
        for pending in await soon(producer, Message("orders", b"1"), Message("orders", b"2")):
            with pytest.raises(SendFailed, match="2 messages"):
                await pending.wait()


async def test_a_batch_is_tried_again_elsewhere(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    """Network failures are repeated, as in async sends: with the same ids."""
    for server in stage.brokers.values():
        server.on(BATCH, cut)
    async with Producer("g", client=client, batching=True) as producer:
        results = [await pending.wait() for pending in await soon(producer, *[Message("orders", b"x")] * 3)]
    assert len(stage.sends()) == 3
    assert [message.unique_id for message in stage.stored("orders")] == [result.msg_id for result in results]


async def test_closing_sends_what_waits(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client, batching=Batching(max_delay=30)) as producer:
        pendings = await soon(producer, Message("orders", b"1"), Message("orders", b"2"))
    assert [pending.result.queue_offset for pending in pendings] == [0, 1]


async def test_an_error_abandons_what_waits(stage: Stage, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(BATCH, silence)
    pendings: list[PendingSend] = []
    with contextlib.suppress(KeyError):
        async with Producer("g", client=client, batching=Batching(max_delay=30)) as producer:
            pendings += await soon(producer, Message("orders", b"1"), Message("orders", b"2"))
            raise KeyError
    assert len(pendings) == 2
    for pending in pendings:
        assert isinstance(pending.error, SendFailed)
        assert pending.error.outcome is Outcome.PERHAPS_STORED


async def test_a_full_window_waits_or_raises(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client, batching=Batching(max_delay=30), max_in_flight=3) as producer:
        pendings = await soon(producer, *[Message("orders", b"x")] * 3)
        with pytest.raises(WindowFull, match="3 messages and 3 bytes are under way, and 3 and"):
            await producer.send_soon(Message("orders", b"x"), wait=False)
        with trio.move_on_after(0.05) as scope:
            await producer.send_soon(Message("orders", b"x"))
        assert scope.cancelled_caught
        assert not any(pending.is_done for pending in pendings)
    assert len(stage.stored("orders")) == 3


@pytest.mark.parametrize(
    "settings", [{"max_bytes": 0}, {"max_bytes": 3 * 1024 * 1024}, {"max_delay": 0.0001}, {"max_delay": 31}]
)
def test_bounds_of_the_setting(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match="batching: max_"):
        Batching(**settings)  # type: ignore[arg-type]


def test_defaults_are_javas() -> None:
    assert (Batching().max_bytes, Batching().max_delay) == (32 * 1024, 0.010)
    for off in (None, False):
        assert Producer("g", nameserver="127.0.0.1:1", batching=off)._settings.batches is None


async def test_without_it_every_message_goes_alone(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        for pending in await soon(producer, *[Message("orders", b"x")] * 5):
            await pending.wait()
    assert batch_sizes(stage) == [1] * 5
    assert {sent.batch for _, sent in stage.sends()} == {False}
    assert {seen.command.code for server in stage.brokers.values() for seen in server.seen} & {BATCH} == set()
    assert SEND in stage.brokers["broker-a"].codes + stage.brokers["broker-b"].codes
