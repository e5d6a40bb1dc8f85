"""Peers that send or read slowly, by real sockets: they harm no one but themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from hypercorn.config import Config

from pyrmq_core.network import paced_stream
from pyrmq_core.network.addresses import parse_address
from pyrmq_core.network.byte_server import ByteConnection
from pyrmq_core.tools.web import bodies, look_up_queue, server
from pyrmq_core.tools.web.bodies import Receive
from pyrmq_core.tools.web.guards import App, Scope, Send
from pyrmq_core.tools.web.static_files import StaticFiles
from tests.network.ends import until
from tests.tools.web.serving import Served, served

# Every wait of the page for a peer is longer than a test may take, so that a test that ends did not wait for one.
SOON, LATER = 60, 3600.0
POST = b"POST /send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def _waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", LATER)
    monkeypatch.setattr(look_up_queue, "LONGEST_WAIT_SECONDS", LATER)
    monkeypatch.setattr(paced_stream, "SEND_SECONDS", LATER)
    monkeypatch.setattr(server, "HEAD_SECONDS", LATER)


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    async with served(allow_changes=True, brokers=1) as page:
        yield page


async def connect(page: Served, text: bytes) -> trio.SocketStream:
    """Returns a connection of the page that has sent so much."""
    host, port = parse_address(page.address.removeprefix("http://").rstrip("/"))
    stream = await trio.open_tcp_stream(host, port)
    await stream.send_all(text)
    return stream


async def ended(stream: trio.SocketStream) -> bytes:
    """Returns what the page sends until it ends the connection, and closes it."""
    received = b""
    async with stream:
        try:
            async for chunk in stream:
                received += chunk
        except trio.BrokenResourceError:
            pass
    return received


async def test_a_file_is_sent_whole(page: Served) -> None:
    answer = await page.get(StaticFiles().address("uPlot.iife.min.js"))
    assert answer.status_code == 200
    assert answer.num_bytes_downloaded == int(answer.headers["content-length"])


async def test_two_hundred_slow_senders_keep_no_one_from_the_page(page: Served) -> None:
    heads = [await connect(page, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ") for _ in range(100)]
    uploads = [await connect(page, POST + b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n") for _ in range(100)]
    for stream in uploads:
        assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 100 ")  # the page waits for its body
        await stream.send_all(b"t")
    with trio.fail_after(SOON):
        assert (await page.http.get("/")).status_code == 200
        assert (await page.http.post("/send", data={"topic": "orders"})).status_code == 403  # read, and without a token
    for stream in (*heads, *uploads):
        await stream.aclose()


async def test_a_slow_upload_is_ended(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.0)
    with trio.fail_after(SOON):
        answer = await ended(await connect(page, POST + b"Content-Length: 1000\r\n\r\nt"))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"slower than 32768 bytes a second" in answer


async def test_more_connections_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 8)
    async with served(brokers=1) as page:
        streams = [await connect(page, b"GET / HTTP/1.1\r\n") for _ in range(20)]
        with trio.fail_after(SOON):
            for stream in streams[:12]:
                assert await ended(stream) == b""
            assert (await page.http.get("/")).status_code == 200
        for stream in streams:
            await stream.aclose()


async def test_many_pieces_that_are_refused_end_their_connection(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 10)
    with trio.fail_after(SOON):
        answer = await ended(await connect(page, POST + CHUNKED + b"1\r\nx\r\n" * 1000))
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_many_pieces_that_a_page_does_not_need(page: Served) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with trio.fail_after(SOON):
        answer = await ended(await connect(page, head + CHUNKED + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_peers_that_are_gone_leave_neither_connection_nor_work(monkeypatch: pytest.MonkeyPatch) -> None:
    connections, paths, serve_one = list[ByteConnection](), list[str](), server._serve_one

    async def recorded(app: App, config: Config, connection: ByteConnection) -> None:
        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            paths.append(scope["path"])
            await app(scope, receive, send)

        connections.append(connection)
        try:
            await serve_one(noted, config, connection)
        finally:
            connections.remove(connection)

    monkeypatch.setattr(server, "_serve_one", recorded)
    request, many = b"GET / HTTP/1.1\r\nHost: localhost\r\n", 1_000
    async with served(brokers=1) as page:
        for text in (b"", request, request + b"\r\n", (request + b"\r\n") * many):
            stream = await connect(page, text)
            await until(lambda: bool(connections))
            if text.endswith(b"\r\n\r\n"):
                await stream.receive_some(1)
            await stream.aclose()
            with trio.fail_after(SOON):
                await until(lambda: not connections)
    assert 2 <= len(paths) < many / 4  # no page was made for most of what the last peer had sent
