"""Cancelled and timed out callers never tear a frame: the peer decodes every one whole, or never sees a byte of it."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pyrmq_core.errors import CallTimeout, ConnectionClosed, HeaderError
from pyrmq_core.network.connection.connection import Connection
from pyrmq_core.network.connection.outbox import FULL_BYTES, WOKEN_AT_ONCE
from pyrmq_core.network.connection.wire import SocketWire, StreamWire
from pyrmq_core.protocol.framing.command import Command, Serialization, success
from pyrmq_core.protocol.framing.frame import encode_frame
from tests.network.ends import Socket, running, until

KIB = 1024
BIG = 3 * 1024 * KIB


@asynccontextmanager
async def slow_peer(kind: str = "socket") -> AsyncIterator[tuple[Connection, Socket]]:
    """Yields a connection over sockets that hold some KiB, as a bare wire or as a stream of trio's."""
    here, there = socket.socketpair()
    for end in (here, there):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
    with closing(there):
        there.setblocking(False)
        wire = SocketWire(here)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(here)) if kind == "stream" else None
        async with running(wire if stream is None else StreamWire(stream, "there", "here")) as connection:
            yield connection, Socket(trio.socket.from_stdlib_socket(there))


@pytest.mark.parametrize("kind", ["socket", "stream"])
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(6, 15))])
async def test_cancelled_at_any_point_frames_stay_whole(seed: int, kind: str) -> None:
    draw = random.Random(seed)
    received: list[Command] = []
    answered: set[str] = set()
    cancelled: set[str] = set()

    async def caller(name: str, size: int, patience: int) -> None:
        body = name.encode() * (size // len(name))
        with trio.CancelScope() as scope:
            tasks.start_soon(cancel_after, scope, patience)
            answer = await connection.call(Command(310, {"n": name}, body), timeout=500)
            assert answer.ext["n"] == name
            answered.add(name)
        if scope.cancelled_caught:
            cancelled.add(name)

    async def cancel_after(scope: trio.CancelScope, ticks: int) -> None:
        for _ in range(ticks):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async def read() -> None:
        while (command := await peer.receive()) is not None:
            received.append(command)
            if command.ext["n"] == "last" or draw.random() < 0.7:
                await peer.send(command.answered(success(command.ext)))
            for _ in range(draw.randrange(4)):
                await trio.lowlevel.checkpoint()

    async with slow_peer(kind) as (connection, peer), trio.open_nursery() as reading:
        reading.cancel_scope.deadline = trio.current_time() + 30
        reading.start_soon(read)
        async with trio.open_nursery() as tasks:
            for number in range(60):
                size = draw.choice((100, 5 * KIB, 40 * KIB, 300 * KIB, BIG if number % 20 == 0 else 100))
                tasks.start_soon(caller, f"{seed}-{number}", size, draw.choice((0, 1, 2, 5, 20, 100, 400, 5000)))
                for _ in range(draw.randrange(3)):
                    await trio.lowlevel.checkpoint()
        await connection.call(Command(1, {"n": "last"}), timeout=500)
        connection.close()
    for command in received:
        name = command.ext["n"]
        assert bytes(command.body) == name.encode() * (len(command.body) // len(name))
    assert received.pop().ext["n"] == "last"
    names = [command.ext["n"] for command in received]
    assert len(names) == len(set(names))
    assert answered <= set(names)
    assert len(answered | cancelled) == 60
    assert cancelled
    assert set(names) & cancelled, "no frame was begun before its caller was cancelled: the test shows nothing"
    assert cancelled - set(names), "no frame was withdrawn: the test shows nothing"
    assert peer.torn_bytes == 0


@pytest.mark.parametrize("way", ["close", "reset", "timeout"])
async def test_each_failed_call_says_whether_its_request_had_left(way: str, autojump_clock: MockClock) -> None:
    left: dict[int, bool] = {}

    async def call(number: int) -> None:
        kind = CallTimeout if way == "timeout" else ConnectionClosed
        with pytest.raises(kind) as caught:
            await connection.call(Command(310, {}, bytes(100 * KIB)), timeout=0.2 if way == "timeout" else 500)
        left[number] = caught.value.request_left
        reported = "did not answer" if left[number] else "could not be written"
        assert way != "timeout" or reported in str(caught.value)

    async with slow_peer() as (connection, peer), trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(call, number)
            await wait_all_tasks_blocked()
        if way == "close":
            connection.close()
        elif way == "reset":
            peer.end.close()
    assert left == {number: number == 0 for number in range(10)}


@pytest.mark.parametrize("kind", ["socket", "stream"])
async def test_of_calls_that_timed_out_only_the_begun_one_arrives(kind: str, autojump_clock: MockClock) -> None:
    async def call(mark: bytes) -> None:
        with pytest.raises(CallTimeout):
            await connection.call(Command(310, {}, mark * 500 * KIB), timeout=0.05)

    async with slow_peer(kind) as (connection, peer):
        async with trio.open_nursery() as nursery:
            for mark in (b"a", b"b", b"c"):
                nursery.start_soon(call, mark)
                await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(connection.send_oneway, Command(15), timeout=500))
            first, second = await peer.receive(), await peer.receive()
        assert first is not None
        assert second is not None
        assert bytes(first.body) == b"a" * 500 * KIB
        assert second.code == 15


async def test_a_cancelled_one_way_request_is_withdrawn_or_goes_out_whole(autojump_clock: MockClock) -> None:
    async with slow_peer() as (connection, peer):
        for _ in range(2):
            with trio.move_on_after(0.02) as scope:
                await connection.send_oneway(Command(310, {}, bytes(500 * KIB)), timeout=500)
            assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(connection.send_oneway, Command(15), timeout=500))
            codes = [command.code for command in (await peer.receive(), await peer.receive()) if command]
        assert codes == [310, 15]


async def test_a_caller_that_is_cancelled_already_sends_nothing() -> None:
    async with slow_peer() as (connection, peer):
        with trio.CancelScope() as scope:
            scope.cancel()
            await connection.call(Command(310), timeout=500)
        assert scope.cancelled_caught
        await connection.send_oneway(Command(15), timeout=500)
        command = await peer.receive()
        assert command is not None
        assert command.code == 15


async def test_the_queue_is_bounded_and_those_beyond_it_wait() -> None:
    ended: list[int] = []

    async def call(number: int) -> None:
        await connection.call(Command(310, {"n": str(number)}, bytes(KIB * KIB)), timeout=500)
        ended.append(number)

    async with slow_peer() as (connection, peer), trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(call, number)
        await wait_all_tasks_blocked()
        assert connection.calls_under_way == 60
        assert FULL_BYTES <= connection._outbox.queued_bytes < FULL_BYTES + 2 * KIB * KIB
        for _ in range(60):
            command = await peer.receive()
            assert command is not None
            await peer.send(command.answered(success()))
            assert connection._outbox.queued_bytes < FULL_BYTES + 2 * KIB * KIB
        await until(lambda: len(ended) == 60)
        assert connection.calls_under_way == 0


async def test_a_frame_that_cannot_be_written_passes_the_room_on() -> None:
    async def fail() -> None:
        with pytest.raises(HeaderError, match="cannot hold code 40000"):
            await connection.call(Command(40_000, serialization=Serialization.ROCKETMQ), timeout=500)

    async with slow_peer("stream") as (connection, peer), trio.open_nursery() as nursery:
        body = bytes(FULL_BYTES - len(encode_frame(Command(310, opaque=1).oneway())))
        nursery.start_soon(partial(connection.send_oneway, Command(310, {}, body), timeout=500))
        await wait_all_tasks_blocked()
        for _ in range(WOKEN_AT_ONCE):
            nursery.start_soon(fail)
        await wait_all_tasks_blocked()
        nursery.start_soon(partial(connection.send_oneway, Command(15), timeout=500))
        for code in (310, 15):
            command = await peer.receive()
            assert command is not None
            assert command.code == code


async def test_waits_for_room_end_at_their_deadlines_and_with_the_connection(autojump_clock: MockClock) -> None:
    left: list[tuple[str, bool]] = []

    async def call(timeout: float) -> None:
        try:
            await connection.call(Command(310, {}, bytes(KIB * KIB)), timeout=timeout)
        except (CallTimeout, ConnectionClosed) as error:
            left.append((type(error).__name__, error.request_left))

    async with slow_peer() as (connection, _), trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(call, 500)
        await wait_all_tasks_blocked()
        for _ in range(5):
            nursery.start_soon(call, 0.05)
        with trio.move_on_after(0.05):
            await connection.call(Command(310), timeout=500)
        await until(lambda: len(left) == 5)
        assert left == [("CallTimeout", False)] * 5
        with pytest.raises(CallTimeout, match="no time was left"):
            await connection.call(Command(310), timeout=0)
        connection.close()
        with trio.fail_after(5), pytest.raises(ConnectionClosed):
            await connection.call(Command(310), timeout=500)
    assert sorted(left[5:]) == [("ConnectionClosed", False)] * 19 + [("ConnectionClosed", True)]


async def test_a_large_body_is_sent_from_where_it_lies() -> None:
    body = memoryview(bytearray(b"x" * BIG))
    async with slow_peer() as (connection, peer), trio.open_nursery() as nursery:
        nursery.start_soon(partial(connection.send_oneway, Command(320, {}, body), timeout=20))
        await wait_all_tasks_blocked()
        waiting = connection._outbox._queue[0].chunks
        assert waiting is not None
        assert all(isinstance(chunk, memoryview) and chunk.obj is body.obj for chunk in waiting)
        command = await peer.receive()
        assert command is not None
        assert command.body == body
