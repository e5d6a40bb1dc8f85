"""Answers that have no task while they wait: what they cost, and that an ended connection drops each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pyrmq_core.network import LateAnswer, Peer, ask
from pyrmq_core.network.connection.answers import DROPPED_AT_ONCE
from pyrmq_core.protocol.framing.command import NO_FIELDS, Command, success
from pyrmq_core.servers.exporter.rpc_latency import RpcLatency
from tests.network.ends import against_socket, dialled, serving, until

COUNT = 3 * DROPPED_AT_ONCE


class Late(LateAnswer):
    """A late answer that notes what its connection does with it, and is made when the test lets it."""

    def __init__(self, request: Command) -> None:
        self.opaque = request.opaque
        self.ready: Callable[[LateAnswer], None] | None = None
        self.drops = 0
        self.on_drop: Callable[[], None] = lambda: None
        self.gate = trio.Event()

    def wait(self, ready: Callable[[LateAnswer], None]) -> None:
        assert self.ready is None
        self.ready = ready

    async def make(self) -> Command:
        await self.gate.wait()
        return success({"opaque": str(self.opaque)})

    def drop(self) -> None:
        self.drops += 1
        self.on_drop()

    def end(self) -> None:
        assert self.ready is not None
        self.gate.set()
        self.ready(self)


class Lates:
    """A handler all of whose answers are late."""

    def __init__(self) -> None:
        self.all: list[Late] = []

    def handle(self, request: Command, peer: Peer) -> Late:
        self.all.append(Late(request))
        return self.all[-1]


@pytest.mark.parametrize("is_timed", [False, True])
async def test_many_wait_without_a_task_and_without_their_fields(is_timed: bool) -> None:
    lates, latency = Lates(), RpcLatency()
    async with against_socket(latency.measured(lates.handle) if is_timed else lates.handle) as (connection, peer):
        await wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        await peer.send(*(Command(11, {"name": "x"}, b"body", opaque=number) for number in range(COUNT)))
        await until(lambda: len(lates.all) == COUNT)
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert connection._under_way.count == COUNT
        for request in connection._under_way._late.values():
            assert (request.ext, request.body) == (NO_FIELDS, b"")
        for late in lates.all:
            late.end()
        answered = set()
        for _ in range(COUNT):
            answer = await peer.receive()
            assert answer is not None
            assert answer.ext == {"opaque": str(answer.opaque)}
            answered.add(answer.opaque)
        assert answered == set(range(COUNT))
        await wait_all_tasks_blocked()
        assert (connection._under_way.count, connection._under_way.bytes, connection._under_way._late) == (0, 0, {})
    assert [late.drops for late in lates.all] == [0] * COUNT
    assert ["true" in labels for labels, _ in latency.family().samples] == [True] * is_timed


async def test_an_ended_connection_drops_those_that_wait_and_makes_no_answer() -> None:
    lates = Lates()
    async with serving(lates.handle) as listening:
        async with dialled(listening) as stranger:
            await stranger.send(*(Command(11, opaque=number) for number in range(COUNT)))
            await until(lambda: len(lates.all) == COUNT)
            lates.all[0].end()
        await until(lambda: not listening.connections)
        await wait_all_tasks_blocked()
        assert [late.drops for late in lates.all] == [0] + [1] * (COUNT - 1)


async def test_an_answer_that_is_ready_as_its_connection_ends_starts_nothing() -> None:
    lates = Lates()
    async with against_socket(lates.handle) as (connection, peer):
        await peer.send(Command(11))
        await until(lambda: bool(lates.all))
        connection.close()
        lates.all[0].end()
        await connection.wait_closed()
        assert await peer.receive() is None
    assert lates.all[0].drops == 0


async def test_an_answer_that_is_ready_while_its_connection_drops_others_starts_nothing() -> None:
    """The connection's nursery has ended."""
    lates = Lates()
    async with against_socket(lates.handle) as (connection, peer):
        await peer.send(Command(11, opaque=1), Command(11, opaque=2))
        await until(lambda: len(lates.all) == 2 and lates.all[1].ready is not None)
        lates.all[1].on_drop = lates.all[0].end
        await connection.aclose()
        assert await peer.receive() is None
    assert [late.drops for late in lates.all] == [0, 1]


async def test_a_handler_around_another_may_await_a_late_answer_and_be_cancelled() -> None:
    lates = Lates()

    async def around(request: Command, peer: Peer) -> Command | None:
        return await ask(lates.handle, request, peer)

    async with against_socket(around) as (connection, peer):
        await peer.send(Command(11, opaque=1), Command(11, opaque=2))
        await until(lambda: len(lates.all) == 2 and lates.all[1].ready is not None)
        lates.all[1].end()
        answer = await peer.receive()
        assert answer is not None
        assert answer.opaque == lates.all[1].opaque
        await connection.aclose()
    assert [late.drops for late in lates.all] == [1, 0]
