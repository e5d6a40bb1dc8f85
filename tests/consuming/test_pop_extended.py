"""Messages that stay invisible while their handler works: extensions, and the acknowledgement behind them."""

from __future__ import annotations

import trio
import trio.testing

from pyrmq_core import MessageExt
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode as Code
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.pop.settle import AckMessage, ChangeInvisibleTime, InvisibleTimeChanged
from tests.consuming.test_pop import SECONDS, TOPIC, scene


async def test_a_handler_that_works_has_its_message_extended_and_the_new_receipt_acknowledged() -> None:
    async with scene() as at:
        at.broker.add(b"slow")

        async def handle(message: MessageExt) -> None:
            await at.server.wait_seen(Code.CHANGE_MESSAGE_INVISIBLETIME, 2)
            await at.consumer.stop()

        with trio.fail_after(SECONDS):
            await at.consumer.run(TOPIC, handle, invisible=3)
        changes = map(ChangeInvisibleTime.from_command, at.of(Code.CHANGE_MESSAGE_INVISIBLETIME))
        assert [change.invisible_ms for change in changes][:2] == [3000, 3000]
        (acked,) = map(AckMessage.from_command, at.of(Code.ACK_MESSAGE))
        assert acked.extra_info == "0 2 3000 1 0 broker-a 0 0"


async def test_an_acknowledgement_has_the_receipt_of_an_extension_under_way() -> None:
    async with scene() as at:
        at.broker.add(b"slow")
        ended = trio.Event()

        async def answer_later(request: Command, peer: Peer) -> Command:
            await ended.wait()
            await trio.testing.wait_all_tasks_blocked()
            return InvisibleTimeChanged(2, 2000, 1).to_command()

        at.server.on(Code.CHANGE_MESSAGE_INVISIBLETIME, answer_later)

        async def handle(message: MessageExt) -> None:
            await at.server.wait_seen(Code.CHANGE_MESSAGE_INVISIBLETIME)
            ended.set()
            await at.consumer.stop()

        with trio.fail_after(SECONDS):
            await at.consumer.run(TOPIC, handle, invisible=2)
        (acked,) = map(AckMessage.from_command, at.of(Code.ACK_MESSAGE))
        assert acked.extra_info == "0 2 2000 1 0 broker-a 0 0"
