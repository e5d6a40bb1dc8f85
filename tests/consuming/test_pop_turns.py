"""Answers to acknowledgements and extensions, among the answers to many pops, at a scripted broker."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.consuming.test_pop import TOPIC, PopBroker, scene
from tests.support.waiting import until

SETTLING = (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
MESSAGES, POPS = 20, 200


class HoldingBroker(PopBroker):
    """A broker that answers nothing about messages it gave before further ones arrive."""

    async def __call__(self, request: Command, peer: Peer) -> Command | None:
        if request.code in SETTLING:
            await self.arrived.wait()
        return await super().__call__(request, peer)


async def test_they_do_not_wait_until_all_popped_messages_are_decoded() -> None:
    async with scene(kind=HoldingBroker) as at:
        at.broker.add(*(b"%d" % number for number in range(MESSAGES)))
        first, *others = await at.consumer.receive(TOPIC, MESSAGES)
        order: list[str] = []

        async def note(kind: str, step: Callable[[], Awaitable[object]]) -> None:
            await step()
            order.append(kind)

        async with trio.open_nursery() as nursery:
            for _ in range(POPS):
                nursery.start_soon(note, "pop", partial(at.consumer.receive, TOPIC))
            nursery.start_soon(note, "settled", first.ack)
            for delivery in others:
                nursery.start_soon(note, "settled", partial(delivery.extend, 30))
            await until(lambda: len(at.of(RequestCode.POP_MESSAGE, *SETTLING)) == 1 + POPS + MESSAGES)
            at.broker.add(*(b"%d" % number for number in range(POPS)))
        last = len(order) - order[::-1].index("settled")
        assert last <= MESSAGES + 100
