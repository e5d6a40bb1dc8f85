"""A port for other bytes than remoting's: strangers cannot keep it to themselves."""

from __future__ import annotations

import logging
import math
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import pytest
import trio

from pyrmq_core.network.byte_server import ByteConnection, BytePort, serve_bytes

MOST = 3
SECONDS = 30.0


async def answer(connection: ByteConnection) -> None:
    """Answers each byte, and knows a peer that sends k."""
    while data := await connection.stream.receive_some(1):
        connection.is_known = connection.is_known or data == b"k"
        await connection.stream.send_all(data)


@asynccontextmanager
async def port(patience: float) -> AsyncIterator[BytePort]:
    async with trio.open_nursery() as nursery:
        serve = partial(serve_bytes, answer, "127.0.0.1", 0, max_connections=MOST, patience=patience)
        bound: BytePort = await nursery.start(serve)
        yield bound
        nursery.cancel_scope.cancel()


async def peer(bound: BytePort, byte: bytes = b"", local_address: str = "127.0.0.1") -> trio.SocketStream:
    """Returns a connection; if it sends a byte, the server has answered it."""
    stream = await trio.open_tcp_stream(bound.host, bound.port, local_address=local_address)
    if byte:
        await stream.send_all(byte)
        assert await received(stream) == byte
    return stream


async def received(stream: trio.SocketStream) -> bytes:
    """Returns what the server sends; nothing when it closed the connection."""
    with trio.fail_after(SECONDS):
        try:
            return bytes(await stream.receive_some(1))
        except trio.BrokenResourceError:
            return b""


async def test_a_newcomer_takes_the_place_of_the_connection_that_is_longest_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with port(patience=0) as bound:
        proven = [await peer(bound, b"k")]
        strangers = [await peer(bound, b"x") for _ in range(2)]
        proven += [await peer(bound, b"k") for _ in range(2)]
        assert [await received(stream) for stream in strangers] == [b"", b""]
        refused = await peer(bound)
        assert await received(refused) == b""
        for stream in proven:
            await stream.send_all(b"y")
            assert await received(stream) == b"y"
        for stream in (*proven, *strangers, refused):
            await stream.aclose()
    (line,) = [line.message for line in caplog.records if line.levelno == logging.WARNING]
    assert f"{bound.address} has 3 connections, its limit; the one with 127.0.0.1:" in line


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address of this machine alone")
async def test_the_host_with_the_most_connections_gives_way() -> None:
    async with port(patience=0) as bound:
        alone = await peer(bound, b"x", "127.0.0.2")
        crowd = [await peer(bound, b"x", "127.0.0.3") for _ in range(2 * MOST)]
        assert [await received(stream) for stream in crowd[: MOST + 1]] == [b""] * (MOST + 1)
        for stream in (alone, *crowd[MOST + 1 :]):
            await stream.send_all(b"y")
            assert await received(stream) == b"y"
        for stream in (alone, *crowd):
            await stream.aclose()


async def test_an_unknown_connection_has_some_time_to_show_itself(caplog: pytest.LogCaptureFixture) -> None:
    async with port(patience=math.inf) as bound:
        strangers = [await peer(bound, b"x") for _ in range(MOST)]
        refused = await peer(bound)
        assert await received(refused) == b""
        await strangers[0].send_all(b"y")
        assert await received(strangers[0]) == b"y"
        await strangers[0].aclose()
        with trio.fail_after(SECONDS):
            while True:  # until the server has seen that there is room
                newcomer = await peer(bound)
                await newcomer.send_all(b"z")
                if await received(newcomer) == b"z":
                    break
        for stream in (*strangers, refused, newcomer):
            await stream.aclose()
    assert "its limit; more are refused" in caplog.text


async def test_connections_that_came_at_once_begin_one_in_a_round_of_the_loop() -> None:
    begun = list[ByteConnection]()

    async def begin(connection: ByteConnection) -> None:
        begun.append(connection)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        bound: BytePort = await nursery.start(partial(serve_bytes, begin, "127.0.0.1", 0))
        with ExitStack() as stack:
            for _ in range(40):  # no task runs meanwhile
                stack.enter_context(socket.create_connection((bound.host, bound.port)))
            rounds = 0
            while len(begun) < 40:
                before = len(begun)
                await trio.lowlevel.checkpoint()
                assert len(begun) <= before + 2
                rounds += 1
            assert rounds >= 20
            nursery.cancel_scope.cancel()
