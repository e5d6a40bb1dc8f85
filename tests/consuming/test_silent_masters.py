"""Members of a group whose master falls silent, its connections open, until another one is elected in its place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, ConsumeFromWhere, LitePullConsumer, MessageExt, PushConsumer
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.consumer_list import ConsumerList
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage
from pyrmq_core.protocol.routes.route import BrokerData
from tests.support.jumping_clock import jumping_clock
from tests.support.scripted import PULL, Step, silence
from tests.support.stage import Stage, staged

__all__ = ["jumping_clock"]

GROUP = "billing"
# A controller of RocketMQ 5.x notices a silent master after 10 s, and elects another one at its next look.
ELECTION_SECONDS = 13.0
# A held pull may be silent for its hold and the broker's sweep of 5 s; its answer may come 5 s late.
SLACK_SECONDS = 5 + 5 + 1
Received = trio.MemorySendChannel[bytes]


@asynccontextmanager
async def pushed(client: Client, received: Received, *, orderly: bool) -> AsyncIterator[None]:
    async def handle(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            await received.send(message.body)

    consumer = PushConsumer(GROUP, client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
    async with consumer, trio.open_nursery() as nursery:
        await consumer.subscribe("orders")

        async def run() -> None:
            await consumer.run(handle, orderly=orderly)

        nursery.start_soon(run)
        yield
        await consumer.stop(0)


@asynccontextmanager
async def polled(client: Client, received: Received) -> AsyncIterator[None]:
    async with (
        LitePullConsumer(GROUP, client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET) as consumer,
        trio.open_nursery() as nursery,
    ):
        await consumer.subscribe("orders")

        async def poll() -> None:
            while True:
                for message in await consumer.poll(1.0):
                    await received.send(message.body)

        nursery.start_soon(poll)
        yield
        nursery.cancel_scope.cancel()


Consuming = Callable[[Client, Received], AbstractAsyncContextManager[None]]
KINDS: dict[str, tuple[Consuming, float]] = {
    "concurrent": (lambda client, received: pushed(client, received, orderly=False), 15.0),
    "orderly": (lambda client, received: pushed(client, received, orderly=True), 15.0),
    "lite pull": (polled, 20.0),
}


def behave(stage: Stage, client: Client) -> dict[int, Step]:
    """Has both brokers list the client as the group's one member, and lock what it asks for; returns these steps."""
    steps: dict[int, Step] = {
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda request, peer: ConsumerList((client.client_id,)).to_command(),
        RequestCode.LOCK_BATCH_MQ: lambda request, peer: LockedQueues(
            LockQueues.from_command(request).queues
        ).to_command(),
    }
    for code, step in steps.items():
        for server in stage.brokers.values():
            server.always(code, step)
    return steps


@pytest.mark.parametrize("age", [0.0, 0.95], ids=["pulled at once before", "pulled a hold before"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_member_goes_on_at_the_new_master(kind: str, age: float, jumping_clock: MockClock) -> None:
    """Its pull was held for a part of the hold when the master fell silent."""
    consuming, hold = KINDS[kind]
    send, receive = trio.open_memory_channel[bytes](10)
    pulled = trio.Event()

    def held(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        """Leaves pulls of "orders" unanswered once the offset of the first message is stored."""
        if request.ext["topic"] != "orders":
            return stage.stores["broker-a"](request, peer)
        if not master.of(RequestCode.UPDATE_CONSUMER_OFFSET):
            return stage.stores["broker-a"].answer_pull(PullMessage.from_command(request))
        pulled.set()
        return None

    async with staged("broker-a", "elected") as stage:
        master, elected = stage.brokers.values()
        for store in stage.stores.values():
            store.name = "broker-a"
            store.put("orders", 0, b"first")
        for topic in ("orders", f"%RETRY%{GROUP}"):
            stage.topic(topic, queues=1, brokers=["broker-a"])
        master.always(PULL, held)
        async with Client(nameserver=stage.nameserver.address, poll_nameserver_interval=3600) as client:
            codes = behave(stage, client)
            async with consuming(client, send):
                assert await receive.receive() == b"first"
                await pulled.wait()
                await trio.sleep(age * hold)
                silent_at = trio.current_time()
                for code in (*codes, *map(int, RequestCode)):
                    master.always(code, silence)
                stage.stores["elected"].put("orders", 0, b"second")
                await trio.sleep(ELECTION_SECONDS)
                for topic, route in stage.table.routes.items():
                    new = BrokerData("DefaultCluster", "broker-a", {0: elected.address})
                    stage.table.routes[topic] = type(route)(route.queue_datas, (new,))
                assert await receive.receive() == b"second"
                assert trio.current_time() - silent_at < hold + SLACK_SECONDS
