"""A connection that has ended keeps nothing: no buffer, no circle that only the garbage collector would find."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pyrmq_core.errors import ConnectionClosed
from pyrmq_core.network import ConnectionPool, Peer
from pyrmq_core.network.connection.connection import Connection
from pyrmq_core.protocol.framing.command import Command, success
from tests.network.ends import dialled, echo, serving, until


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def large_answer(_: Command, __: Peer) -> Command:
    return success(body=bytes(8 << 20))


@pytest.mark.usefixtures("no_collection")
async def test_a_connection_that_ended_is_freed_without_the_garbage_collector() -> None:
    seen: list[weakref.ref[object]] = []
    peers: list[Peer] = []

    def handle(request: Command, peer: Peer) -> Command:
        assert isinstance(peer.connection, Connection)
        seen.extend((weakref.ref(peer.connection), weakref.ref(peer.connection._outbox)))
        if request.code == 2:
            peers.append(peer)
        return large_answer(request, peer)

    async with serving(handle) as listening:
        for code in (1, 2):
            async with dialled(listening) as stranger:
                await stranger.send(Command(code, opaque=1))  # the answer is not read: it waits
                await stranger.send_bytes(struct.pack(">II", 1 << 20, 100) + bytes(500_000))
                await until(lambda: bool(listening.connections) and listening.connections[0]._received > 1)
            await until(lambda: not listening.connections)
            await wait_all_tasks_blocked()
        assert [ref() is None for ref in seen] == [True, True, False, False]
        # A connection that a handler keeps holds no buffers, and reports that it has ended.
        kept = peers[0].connection
        assert isinstance(kept, Connection)
        assert kept._decoder.buffered_bytes == 0
        assert not kept._outbox._queue
        assert kept.peer is not peers[0]
        assert kept.peer.address == peers[0].address
        with pytest.raises(ConnectionClosed):
            await kept.call(Command(1), timeout=1)
        kept.answer(Command(1), success())


@pytest.mark.usefixtures("no_collection")
async def test_a_client_s_connection_that_ended_is_freed_without_the_garbage_collector() -> None:
    async with serving(echo) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        await pool.call(listening.address, Command(1), timeout=60)
        ended: weakref.ref[Connection] = weakref.ref(pool.connections[0])
        pool.close(listening.address)
        await until(lambda: not listening.connections)
        await pool.call(listening.address, Command(1), timeout=60)
        await wait_all_tasks_blocked()
        assert ended() is None
        await pool.aclose()
