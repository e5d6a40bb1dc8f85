"""Heads of requests that are slow: by a clock that the test sets, over real sockets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from pyrmq_core import Client
from pyrmq_core.network.addresses import parse_address
from pyrmq_core.tools.web.server import HEAD_SECONDS, WebSettings, serve_web
from pyrmq_core.tools.web.static_files import StaticFiles

FILE = StaticFiles().address("page.css").encode()
HALF = b"GET %s HTTP/1.1\r\nHost: loc" % FILE
HALVES = (HALF, HALF.replace(FILE, b"/messages"))
OTHER_HALF = b"alhost\r\n\r\n"


@pytest.fixture
async def address(mock_clock: trio.testing.MockClock) -> AsyncIterator[tuple[str, int]]:
    """A page over a client that reaches no cluster; nothing here queries one."""
    async with Client(nameserver="127.0.0.1:1") as client, trio.open_nursery() as nursery:
        page: str = await nursery.start(serve_web, client, "none", WebSettings(port=0))
        yield parse_address(page.removeprefix("http://").rstrip("/"))
        nursery.cancel_scope.cancel()


async def pass_time(clock: trio.testing.MockClock, seconds: float) -> None:
    await trio.testing.wait_all_tasks_blocked(0.01)
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked(0.01)


async def answer(stream: trio.SocketStream) -> bytes:
    """Returns the first line of an answer, after all of it has been read."""
    received = bytearray()
    async for chunk in stream:
        received += chunk
        head, _, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None and len(body) == int(length[1]):
            break
    return bytes(received.partition(b"\r\n")[0])


async def test_a_head_that_does_not_come_ends_its_connection(
    mock_clock: trio.testing.MockClock, address: tuple[str, int]
) -> None:
    async with await trio.open_tcp_stream(*address) as silent, await trio.open_tcp_stream(*address) as slow:
        for byte in HALF[: HEAD_SECONDS - 1]:
            await slow.send_all(bytes([byte]))
            await pass_time(mock_clock, 1.0)
        await slow.send_all(HALF[HEAD_SECONDS - 1 :])  # it is still read, yet bytes earn no time
        await pass_time(mock_clock, 1.0)
        for stream in (silent, slow):
            assert await stream.receive_some() == b""


@pytest.mark.parametrize("half", HALVES)
async def test_a_head_that_comes_in_time_is_answered(
    mock_clock: trio.testing.MockClock, address: tuple[str, int], half: bytes
) -> None:
    async with await trio.open_tcp_stream(*address) as stream:
        for _ in range(3):  # each request of a connection has the whole time
            await stream.send_all(half)
            await pass_time(mock_clock, HEAD_SECONDS - 0.1)
            await stream.send_all(OTHER_HALF)
            assert await answer(stream) == b"HTTP/1.1 200 "
        await stream.send_all(half)
        await pass_time(mock_clock, HEAD_SECONDS)
        assert await stream.receive_some() == b""


@pytest.mark.parametrize("half", HALVES)
async def test_a_connection_without_a_further_request_is_ended(
    mock_clock: trio.testing.MockClock, address: tuple[str, int], half: bytes
) -> None:
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(half + OTHER_HALF)
        assert await answer(stream) == b"HTTP/1.1 200 "
        await pass_time(mock_clock, HEAD_SECONDS)
        assert await stream.receive_some() == b""
