"""Sends whose results come later: bounded by count and bytes, ended with their producer."""

import contextlib

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, Message, MessageQueue, Outcome, PendingSend, Producer, SendFailed
from tests.support.scripted import SEND, after, later, refuse, silence
from tests.support.stage import Stage, settled

B3 = MessageQueue("orders", "broker-b", 3)

# --- Results later


async def test_send_soon_gives_results_later(stage: Stage, client: Client) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(SEND, after(release, stage.stores[name]))
    async with Producer("g", client=client) as producer:
        pending = [await producer.send_soon(Message("orders", b"%d" % number)) for number in range(20)]
        assert not any(send.is_done for send in pending)
        reported: list[PendingSend] = []
        for send in pending:
            send.add_done_callback(reported.append)
        release.set()
        results = [await send.wait() for send in pending]
    assert len({result.msg_id for result in results}) == 20
    assert sorted(map(id, reported)) == sorted(map(id, pending))
    pending[0].add_done_callback(reported.append)
    assert reported[-1] is pending[0]  # added after the end: called at once
    assert await pending[0].wait() is results[0]  # and again, as often as one likes


async def test_send_soon_is_bounded_by_count(stage: Stage, client: Client) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(SEND, after(release, stage.stores[name]))
    async with Producer("g", client=client, max_in_flight=5) as producer, trio.open_nursery() as nursery:
        started = 0

        async def send_many() -> None:
            nonlocal started
            for _ in range(12):
                await producer.send_soon(Message("orders", b"x"))
                started += 1

        nursery.start_soon(send_many)
        with trio.fail_after(60):
            while len(stage.sends()) < 5:
                await settled()
        assert (started, len(stage.sends())) == (5, 5)
        release.set()
    assert len(stage.stored("orders")) == 12


async def test_send_soon_is_bounded_by_bytes(stage: Stage, client: Client) -> None:
    """Bodies as they are sent; one larger than the bound goes when it is alone."""
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(SEND, after(release, stage.stores[name]))
    async with (
        Producer("g", client=client, max_in_flight_bytes=1000, compression="none") as producer,
        trio.open_nursery() as nursery,
    ):
        for _ in range(2):
            await producer.send_soon(Message("orders", b"x" * 400))
        with trio.move_on_after(0.1) as waited:
            await producer.send_soon(Message("orders", b"x" * 400))
        assert waited.cancelled_caught
        nursery.start_soon(producer.send_soon, Message("orders", b"y" * 5000))
        await settled()
        assert len(stage.sends()) == 2
        release.set()
    assert sorted(len(stored.body) for stored in stage.stored("orders")) == [400, 400, 5000]


async def test_send_soon_lets_the_first_in_first(stage: Stage, client: Client) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.on(SEND, after(release, stage.stores[name]))
    order: list[int] = []
    async with (
        Producer("g", client=client, max_in_flight=1) as producer,
        trio.open_nursery() as nursery,
    ):
        await producer.send_soon(Message("orders", b"x"))

        async def send(number: int) -> None:
            await producer.send_soon(Message("orders", b"x"))
            order.append(number)

        for number in range(5):
            nursery.start_soon(send, number)
            await settled()
        release.set()
    assert order == [0, 1, 2, 3, 4]


async def test_a_failed_one_raises_where_it_is_waited_for(stage: Stage, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(SEND, refuse(13, "no"))
    async with Producer("g", client=client) as producer:
        pending = await producer.send_soon(Message("orders", b"x"))
        for _ in range(2):
            with pytest.raises(SendFailed, match="MESSAGE_ILLEGAL"):
                await pending.wait()
        assert isinstance(pending.error, SendFailed)


async def test_leaving_waits_for_what_is_under_way(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    for name, server in stage.brokers.items():
        server.always(SEND, later(0.5, stage.stores[name]))
    async with Producer("g", client=client) as producer:
        pending = [await producer.send_soon(Message("orders", b"x")) for _ in range(10)]
    assert all(send.is_done and send.error is None for send in pending)
    assert len(stage.stored("orders")) == 10


async def test_leaving_by_an_error_ends_what_is_under_way(stage: Stage, client: Client) -> None:
    """No `PendingSend` waits for ever: each has the error."""
    for server in stage.brokers.values():
        server.always(SEND, silence)
    pending: list[PendingSend] = []
    with contextlib.suppress(KeyError):
        async with Producer("g", client=client) as producer:
            pending.append(await producer.send_soon(Message("orders", b"x"), timeout=600))
            raise KeyError("my own")
    with pytest.raises(SendFailed, match="closed while a message for orders was under way") as caught:
        await pending[0].wait()
    assert caught.value.outcome is Outcome.PERHAPS_STORED
