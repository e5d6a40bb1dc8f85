"""Requests written by another thread while the loop waits: at once and whole, or not at all."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest
import trio

from pyrmq_core.errors import ConnectionClosed, NetworkError
from pyrmq_core.network import LoopAccess
from pyrmq_core.network.connection.connection import Connection
from pyrmq_core.network.connection.wire import Chunk, SocketWire
from pyrmq_core.protocol.framing.command import Command
from tests.network.ends import KINDS, Recorder, Socket, echo, joined, running, until

LATER = 600.0


def access_here() -> LoopAccess:
    """Returns the access of a thread that holds the loop."""
    return LoopAccess(trio.current_time, trio.lowlevel.current_trio_token().run_sync_soon, writes_here=True)


def post_from_thread(connection: Connection, ends: list[Command | NetworkError], body: bytes = b"") -> object:
    deadline = trio.current_time() + LATER
    return connection.post_until(Command(11, body=body), deadline, LATER, ends.append, access_here())


async def test_it_is_written_at_once_and_gets_its_answer() -> None:
    reported: list[Command | NetworkError] = []
    async with joined("socket", there=echo) as (here, there):
        for number in range(1, 4):
            assert post_from_thread(here, reported, b"%d" % number) is not None
            assert here.calls_under_way == 1
            assert len(reported) == number - 1
            await until(lambda: not here.calls_under_way)
        assert there.calls_under_way == 0
    assert [answer.body for answer in reported if isinstance(answer, Command)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("kind", KINDS)
async def test_not_while_others_are_under_way(kind: str) -> None:
    recorder = Recorder()
    reported: list[Command | NetworkError] = []
    async with joined(kind, there=recorder.held) as (here, _):
        here.post(Command(11), timeout=LATER, done=reported.append)
        assert post_from_thread(here, reported) is None
        assert here.calls_under_way == 1
        recorder.gate.set()


async def test_not_over_a_wire_that_only_its_writer_may_use() -> None:
    reported: list[Command | NetworkError] = []
    async with joined("stream", there=echo) as (here, _):
        assert post_from_thread(here, reported) is None
        assert here.calls_under_way == 0
        assert (await here.call(Command(12), timeout=60)).code == 0
    assert reported == []


async def test_not_before_the_sweeper_would_look() -> None:
    async with joined("socket", there=echo) as (here, _):
        soon = trio.current_time() + 1e-6
        assert here.post_until(Command(11), soon, 1e-6, lambda _: None, access_here()) is None


async def test_not_on_a_closed_connection() -> None:
    async with joined("socket", there=echo) as (here, _):
        here.close()
        assert post_from_thread(here, []) is None


class Sparing(SocketWire):
    """A socket wire whose first write takes as much as `take` says."""

    take: Callable[[Chunk], int] | None = None

    def send_nowait(self, chunks: Sequence[Chunk]) -> int:
        if self.take is None:
            return super().send_nowait(chunks)
        take, self.take = self.take, None
        count = take(chunks[0])
        return super().send_nowait([chunks[0][:count]]) if count else 0


async def test_the_rest_of_a_frame_is_the_writers() -> None:
    here, there = socket.socketpair()
    wire = Sparing(here)
    with closing(there):
        peer = Socket(trio.socket.from_stdlib_socket(there))
        async with running(wire) as connection:
            wire.take = lambda chunk: 9
            assert post_from_thread(connection, [], b"x" * 100) is not None
            connection.post(Command(12), timeout=LATER, done=lambda _: None)
            received = [await peer.receive(), await peer.receive()]
            assert [(command.code, command.body) for command in received if command is not None] == [
                (11, b"x" * 100),
                (12, b""),
            ]


async def test_a_full_wire_takes_nothing() -> None:
    here, there = socket.socketpair()
    wire = Sparing(here)
    with closing(there):
        peer = Socket(trio.socket.from_stdlib_socket(there))
        async with running(wire) as connection:
            wire.take = lambda chunk: 0
            assert post_from_thread(connection, []) is None
            assert connection.calls_under_way == 0
            connection.post(Command(12), timeout=LATER, done=lambda _: None)
            received = await peer.receive()
            assert received is not None
            assert received.code == 12


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
async def test_a_write_that_fails_ends_the_connection(error: type[BaseException]) -> None:
    """After an interrupt it is unknown how much of the frame is out: neither the rest nor another frame may follow."""
    here, there = socket.socketpair()
    wire = Sparing(here)
    reported: list[Command | NetworkError] = []

    def fail(chunk: Chunk) -> int:
        raise error

    with closing(there):
        async with running(wire) as connection:
            wire.take = fail
            if issubclass(error, OSError):
                assert post_from_thread(connection, reported) is not None
            else:
                with pytest.raises(error):
                    post_from_thread(connection, reported)
            await connection.wait_closed()
    (end,) = reported
    assert isinstance(end, ConnectionClosed)
