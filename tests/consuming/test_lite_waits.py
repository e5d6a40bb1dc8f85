"""Consumers of lite topics at several scripted brokers: what an idle one asks, and what ends pops that wait on."""

from __future__ import annotations

from dataclasses import replace

import trio

from pyrmq_core.client.consumer.pop.delivery import PopDelivery
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.messages.properties import encode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.pop.lite import PopLiteMessage
from pyrmq_core.protocol.requests.pop.pop_message import PopAnswer, PopMessage
from pyrmq_core.protocol.requests.pop.settle import ChangeInvisibleTime
from tests.consuming.test_pop import SECONDS, TOPIC, PopBroker, Scene, scene
from tests.support.scripted import ScriptedServer

POP, CHANGE = RequestCode.POP_LITE_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME
WAIT_SECONDS = 10.0


class LiteBroker(PopBroker):
    """A broker whose messages are all of lite topic `a`."""

    async def __call__(self, request: Command, peer: Peer) -> Command | None:
        if request.code == RequestCode.LITE_SUBSCRIPTION_CTL:
            return success()
        if request.code != POP:
            return await super().__call__(request, peer)
        lite = PopLiteMessage.from_command(request)
        asked = PopMessage("workers", TOPIC, -1, lite.max_messages, lite.invisible_ms, lite.poll_time_ms, 0)
        answer = PopAnswer.from_command(await super().__call__(asked.to_command(), peer) or success())
        return replace(answer, revive_queue_id=999, order_count_info="").to_command()

    def record(self, body: bytes, offset: int) -> bytes:
        (record,) = iterate_records(super().record(body, offset))
        places = {"INNER_MULTI_DISPATCH": f"%LMQ%${TOPIC}$a", "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        return replace(record, properties=encode_properties(places)).encode()


class FullBroker(LiteBroker):
    """A broker without `holds` answers at once, and has a message from the third pop on."""

    pops = 0

    def popped(self, asked: PopMessage) -> Command:
        self.pops += 1
        if not self.holds and self.pops == 3:
            self.add(b"there")
        return super().popped(asked)


def waits(server: ScriptedServer) -> list[bool]:
    """Returns for each pop whether it waits at the broker for as long as the receive does."""
    times = [PopLiteMessage.from_command(request).poll_time_ms for request in server.of(POP)]
    assert all(time == 0 or time > 1000 for time in times), times
    return [time > 0 for time in times]


async def received(at: Scene) -> list[PopDelivery]:
    return await at.consumer.receive(TOPIC, 32, wait=WAIT_SECONDS, lite=True)


async def test_an_idle_consumer_of_lite_topics_waits_once_at_each_broker() -> None:
    async with scene("broker-a", "broker-b", kind=LiteBroker) as at:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def receive() -> None:
                    deliveries = await received(at)
                    assert [delivery.message.body for delivery in deliveries] == [b"there"]
                    assert deliveries[0].message.broker_name == "broker-b"

                for server in at.servers:
                    await server.wait_seen(POP, 2)
                at.brokers[1].add(b"there")
        assert [waits(server) for server in at.servers] == [[False, True], [False, True]]


async def test_a_pop_that_waits_on_is_the_next_receives() -> None:
    async with scene("broker-a", "broker-b", kind=LiteBroker) as at:
        with trio.fail_after(SECONDS):
            for broker, body, seen in ((at.brokers[1], b"first", (2, 2)), (at.brokers[0], b"second", (3, 4))):
                async with trio.open_nursery() as nursery:

                    @nursery.start_soon
                    async def receive(body: bytes = body) -> None:
                        assert [each.message.body for each in await received(at)] == [body]

                    for server, count in zip(at.servers, seen, strict=True):
                        await server.wait_seen(POP, count)
                    broker.add(body)
        assert [waits(server) for server in at.servers] == [[False, True, False], [False, True, False, True]]
        assert at.servers[0].of(CHANGE) == []


async def test_a_broker_that_holds_no_pop_is_asked_again() -> None:
    async with scene("broker-a", "broker-b", kind=FullBroker) as at:
        at.brokers[1].holds = False
        with trio.fail_after(SECONDS):
            assert [each.message.body for each in await received(at)] == [b"there"]
        assert waits(at.servers[0]).count(True) == 1


async def test_a_message_that_nobody_waits_for_any_more_is_given_back_and_counts_no_try() -> None:
    async with scene("broker-a", "broker-b", kind=LiteBroker) as at:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(received, at)
                for server in at.servers:
                    await server.wait_seen(POP, 2)
                at.brokers[1].add(b"there")
            at.brokers[0].add(b"too late")
            await at.servers[0].wait_seen(CHANGE)
        (change,) = map(ChangeInvisibleTime.from_command, at.servers[0].of(CHANGE))
        assert (change.offset, change.invisible_ms, change.lite_topic, change.suspend) == (0, 1, "a", True)
