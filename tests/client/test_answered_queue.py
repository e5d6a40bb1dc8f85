"""Every result of a send names the queue of the broker's answer, also where that is not the queue of the request.

A broker of 5.4 and later puts a message with a priority into the queue of that number, whatever queue was requested.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace

import pytest

from pyrmq_core import (
    AnyQueue,
    Client,
    Message,
    MessageQueue,
    Producer,
    SendContext,
    SendResult,
    encode_batch,
    unique_ids,
)
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from tests.support.scripted import BATCH, SEND, Step
from tests.support.stage import Stage

A1, A3 = (MessageQueue("orders", "broker-a", queue_id) for queue_id in (1, 3))
MESSAGES = [Message("orders", b"first"), Message("orders", b"second")]


@pytest.fixture
def moving(stage: Stage) -> Stage:
    """Its broker-a stores everything in queue 3."""

    def moves(store: Step) -> Step:
        def step(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
            sent = SendMessage.from_command(request)
            moved = replace(sent, queue_id=3).to_command()
            return store(replace(request, ext=moved.ext), peer)

        return step

    for code in (SEND, BATCH):
        stage.brokers["broker-a"].always(code, moves(stage.stores["broker-a"]))
    return stage


def places(results: Sequence[SendResult]) -> list[tuple[MessageQueue, int]]:
    return [(result.message_queue, result.queue_offset) for result in results]


async def test_results_of_each_kind_of_send(moving: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        results = [await producer.send(MESSAGES[0], queue=A1)]
        results.append(await (await producer.send_soon(MESSAGES[0], queue=A1)).wait())
        results += await producer.send_batch(MESSAGES, queue=A1)
        results += await (await producer.send_batch_soon(MESSAGES, queue=A1)).wait()
    assert places(results) == [(A3, offset) for offset in range(6)]
    assert len(moving.stores["broker-a"].queues["orders", 3]) == 6


async def test_results_of_messages_that_share_a_request(moving: Stage, client: Client) -> None:
    async with Producer("g", client=client, batching=True) as producer:
        pendings = [await producer.send_soon(message, queue=A1) for message in MESSAGES]
        assert places([await pending.wait() for pending in pendings]) == [(A3, 0), (A3, 1)]


async def test_hooks_see_the_queue_of_the_answer(moving: Stage, client: Client) -> None:
    queues: list[MessageQueue] = []

    class Hook:
        def send_message_before(self, context: SendContext) -> None:
            queues.append(context.queue)

        def send_message_after(self, context: SendContext) -> None:
            queues.append(context.queue)

    async with Producer("g", client=client, hooks=[Hook()]) as producer:
        await producer.send(MESSAGES[0], queue=A1)
    assert queues == [A1, A3]


async def test_a_window_counts_by_the_queue_of_the_answer(moving: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer, producer.open_window(list_ranges=True) as window:
        for _ in range(2):
            await window.put(encode_batch(MESSAGES, unique_ids(2)), AnyQueue(A1, keep=True))
        summary = await window.drain()
    assert summary.messages_by_queue == {A3: 4}
    assert [(stored.queue, stored.start) for stored in summary.ranges] == [(A3, 0), (A3, 2)]
    assert {(broker, sent.queue_id) for broker, sent in moving.sends()} == {("broker-a", 1)}
