"""Answers that wait to be written: the limits for a connection that does not read, and that all come when it reads."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from pyrmq_core.network import Peer
from pyrmq_core.network.connection.outbox import TURN_BYTES, Answer, Outbox
from pyrmq_core.protocol.framing.command import Command, success
from tests.network.ends import against_socket, until
from tests.network.test_outbox import RecordingWire, frame, outbox_on

MIB = 1024 * 1024


class Held:
    """A handler of requests that wait for one event, and read a large answer when their turn to be written comes."""

    def __init__(self, answer_bytes: int) -> None:
        self.arrived = trio.Event()
        self.held = self.made = 0
        self._answer_bytes = answer_bytes

    async def handle(self, request: Command, peer: Peer) -> Command:
        self.held += 1
        await self.arrived.wait()
        await peer.connection.wait_answer_turn()
        self.made += 1
        return success(body=bytes(self._answer_bytes))


async def test_answers_of_held_requests_are_made_when_their_turn_comes() -> None:
    held = Held(MIB)
    async with against_socket(held.handle) as (connection, peer):
        await peer.send(*(Command(11, opaque=opaque) for opaque in range(100)))
        await until(lambda: held.held == 100)
        held.arrived.set()
        await wait_all_tasks_blocked()
        assert 1 <= held.made <= 3, "a connection that does not read has a few answers made, not all"
        assert connection._outbox.queued_bytes < TURN_BYTES + 2 * MIB
        opaques = set()
        for _ in range(100):
            answer = await peer.receive()
            assert answer is not None
            assert len(answer.body) == MIB
            assert connection._outbox.queued_bytes < TURN_BYTES + 2 * MIB
            opaques.add(answer.opaque)
        assert opaques == set(range(100))


async def test_answers_whose_turn_has_not_come_go_with_their_connection() -> None:
    held = Held(MIB)
    async with against_socket(held.handle) as (connection, peer):
        await peer.send(*(Command(11, opaque=opaque) for opaque in range(20)))
        await until(lambda: held.held == 20)
        held.arrived.set()
        await wait_all_tasks_blocked()
        peer.end.close()
        await connection.wait_closed()
        assert held.made < 20


async def test_small_answers_are_all_made_at_once() -> None:
    held = Held(100)
    async with against_socket(held.handle) as (_, peer):
        await peer.send(*(Command(11, opaque=opaque) for opaque in range(500)))
        await until(lambda: held.held == 500)
        held.arrived.set()
        await wait_all_tasks_blocked()
        assert held.made == 500
        assert len({answer.opaque for _ in range(500) if (answer := await peer.receive())}) == 500


async def test_a_turn_comes_also_when_all_that_was_queued_is_withdrawn() -> None:
    wire = RecordingWire(room=0)
    async with outbox_on(wire) as outbox, trio.open_nursery() as nursery:
        large = frame(b"head", bytes(2 * TURN_BYTES))
        outbox.send(large, alone=True)
        nursery.start_soon(outbox.wait_turn)
        await wait_all_tasks_blocked()
        outbox.withdraw(large)
        wire.give_room(1)
        with trio.fail_after(60):
            while nursery.child_tasks:
                await wait_all_tasks_blocked()
    assert wire.writes == []


class SummingOutbox(Outbox):
    """An outbox that counts how often it sums the answers that are queued."""

    sums = 0

    def _answer_bytes(self) -> int:
        self.sums += 1
        return super()._answer_bytes()


async def test_answers_that_drain_slowly_are_summed_a_few_times_only() -> None:
    wire = RecordingWire(room=0)
    async with trio.open_nursery() as nursery:
        outbox = SummingOutbox(wire, lambda: nursery.start_soon(outbox.run))
        while not outbox.is_full:
            answer = Answer()
            answer.set_frame(bytes(4000), b"")
            outbox.send(answer, alone=False)
        for _ in range(100):
            answer = Answer()
            answer.set_frame(bytes(4000), b"")
            outbox.send(answer, alone=False)
        async with trio.open_nursery() as waiting:
            waiting.start_soon(outbox.wait_answers_drained)
            await wait_all_tasks_blocked()
            while waiting.child_tasks:
                wire.give_room(3000)
                await wait_all_tasks_blocked()
        assert outbox.sums <= 2
        nursery.cancel_scope.cancel()
