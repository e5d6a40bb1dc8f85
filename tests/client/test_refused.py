"""A window that collects refused messages: halving finds them, and the others follow one another as before."""

from collections.abc import AsyncIterator, Awaitable

import pytest

from pyrmq_core import AnyQueue, Client, KeyedQueue, Message, MessageQueue, Payload, Producer, SendFailed, encode_batch
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from tests.support.scripted import BATCH
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)


@pytest.fixture
async def producer(client: Client) -> AsyncIterator[Producer]:
    async with Producer("g", client=client) as producer:
        yield producer


def batch(*bodies: bytes) -> Payload:
    return encode_batch(
        [Message("orders", body) for body in bodies], [f"{number:032X}" for number in range(len(bodies))]
    )


def refuse_poison(stage: Stage, code: int) -> None:
    for name, server in stage.brokers.items():

        def step(request: Command, peer: Peer, name: str = name) -> Command | Awaitable[Command | None] | None:
            if b"poison" in bytes(request.body or b""):
                return refusal(code, "poison")
            return stage.stores[name](request, peer)

        server.always(BATCH, step)


@pytest.mark.parametrize("to", [AnyQueue(keep=True), AnyQueue(A0, keep=True), KeyedQueue("", (A0,))])
async def test_the_others_stay_in_one_queue_in_order(stage: Stage, producer: Producer, to: Target) -> None:
    refuse_poison(stage, ResponseCode.MESSAGE_ILLEGAL)
    async with producer.open_window(keep_refused=True) as window:
        await window.put(batch(b"0", b"1", b"poison", b"2", b"3", b"4", b"poison", b"5"), to)
        await window.put(batch(b"6", b"7"), to)
        summary = await window.drain()
        refused = window.take_refused()
        assert window.take_refused() == []
    assert (summary.messages, len(summary.messages_by_queue)) == (8, 1)
    assert [(refusal.payload.count, refusal.code) for refusal in refused] == [(1, ResponseCode.MESSAGE_ILLEGAL)] * 2
    assert [bytes(stored.body) for stored in stage.stored("orders")] == [b"%d" % number for number in range(8)]


async def test_what_may_be_stored_is_no_refusal(stage: Stage, producer: Producer) -> None:
    refuse_poison(stage, ResponseCode.SYSTEM_ERROR)
    async with producer.open_window(keep_refused=True) as window:
        await window.put(batch(b"0", b"poison"), AnyQueue())
        with pytest.raises(SendFailed):
            await window.drain()
        assert window.take_refused() == []
