"""TLS and plain on one port: the modes of a server, and each failure of a handshake, logged in one line."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio
import trustme
from trio.testing import wait_all_tasks_blocked

from pyrmq_core.errors import ConnectFailed, ConnectionClosed
from pyrmq_core.network import ConnectionPool, TlsMode
from pyrmq_core.protocol.framing.command import Command, success
from tests.network.ends import Recorder, dialled, echo, serving, silent_port, until

HELLO = bytes.fromhex("160301")


@dataclass(frozen=True, slots=True)
class Contexts:
    """Both sides' settings: a server known to an authority, a client that trusts it, one that does not."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    distrustful: ssl.SSLContext
    trusting: ssl.SSLContext


@pytest.fixture(scope="module")
def contexts() -> Contexts:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return Contexts(server, client, ssl.create_default_context(), trusting)


@asynccontextmanager
async def pool_of(tls: ssl.SSLContext | None) -> AsyncIterator[ConnectionPool]:
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, tls=tls)
        yield pool
        await pool.aclose()


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
async def test_tls_is_spoken(contexts: Contexts, mode: TlsMode) -> None:
    async with serving(echo, tls=contexts.server, tls_mode=mode) as listening:
        for tls in (contexts.client, contexts.trusting):
            async with pool_of(tls) as pool, trio.open_nursery() as nursery:

                async def call(pool: ConnectionPool = pool, size: int = 0) -> None:
                    body = bytes(range(256)) * size
                    assert (await pool.call(listening.address, Command(10, {}, body), timeout=10)).body == body

                for size in (0, 1, 100, 4000, 16_000):
                    nursery.start_soon(call, pool, size)


async def test_both_speak_to_a_permissive_server(contexts: Contexts) -> None:
    recorder = Recorder()
    at_once, tls = recorder.at_once, contexts.client
    async with serving(at_once, tls=contexts.server) as listening, pool_of(None) as plain, pool_of(tls) as encrypted:
        assert (await plain.call(listening.address, Command(1), timeout=60)).code == 0
        assert (await encrypted.call(listening.address, Command(2), timeout=60)).code == 0
        for peer in recorder.peers:
            assert (await peer.connection.call(Command(39), timeout=60)).code == 3


async def test_a_plain_client_of_an_enforcing_server(contexts: Contexts, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo, tls=contexts.server, tls_mode=TlsMode.ENFORCING) as listening, pool_of(None) as pool:
        with pytest.raises(ConnectionClosed) as caught:
            await pool.call(listening.address, Command(1), timeout=60)
        assert caught.value.request_left
        async with pool_of(contexts.client) as encrypted:
            assert (await encrypted.call(listening.address, Command(1), timeout=60)).code == 0
    assert len(caplog.records) == 1
    assert "spoke plain: this port takes TLS only" in caplog.text


@pytest.mark.parametrize("has_context", [True, False])
async def test_a_tls_client_of_a_server_without_tls(
    contexts: Contexts, has_context: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tls = contexts.server if has_context else None
    mode = TlsMode.DISABLED if has_context else TlsMode.PERMISSIVE
    async with serving(echo, tls=tls, tls_mode=mode) as listening, pool_of(contexts.client) as pool:
        with pytest.raises(ConnectFailed, match=f"no connection to {listening.address}: TLS: .* is TLS switched on"):
            await pool.call(listening.address, Command(1), timeout=60)
    assert len(caplog.records) == 1


async def test_a_peer_that_answers_a_handshake_in_plain(contexts: Contexts) -> None:
    async def answer_plain(end: trio.SocketStream) -> None:
        await end.receive_some()
        await end.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, answer_plain, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        async with pool_of(contexts.client) as pool:
            with pytest.raises(ConnectFailed, match="TLS: it answered in plain; switch TLS off here, or on there"):
                await pool.call(f"127.0.0.1:{port}", Command(1), timeout=60)
        nursery.cancel_scope.cancel()


async def test_a_certificate_that_is_not_trusted(contexts: Contexts, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo, tls=contexts.server) as listening, pool_of(contexts.distrustful) as pool:
        with pytest.raises(ConnectFailed, match=r"certificate is not accepted .*trust its authority"):
            await pool.call(listening.address, Command(1), timeout=60)
        await until(lambda: not listening.connections)
    assert "no TLS handshake" in caplog.text


async def test_a_certificate_of_another_name(contexts: Contexts) -> None:
    async with serving(echo, tls=contexts.server) as listening, pool_of(contexts.client) as pool:
        assert (await pool.call(f"127.0.0.1:{listening.port}", Command(1), timeout=60)).code == 0
        with pytest.raises(ConnectFailed, match=r"certificate is not accepted .*not valid for 'localhost'"):
            await pool.call(f"localhost:{listening.port}", Command(1), timeout=60)


async def test_a_handshake_that_never_ends(contexts: Contexts, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo, tls=contexts.server, frame_timeout=0.1) as listening, dialled(listening) as peer:
        await peer.send_bytes(HELLO)
        assert await peer.receive() is None
        await until(lambda: "no TLS handshake: it took too long" in caplog.text)
    with silent_port() as address:
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery, tls=contexts.client, connect_timeout=0.1)
            with pytest.raises(ConnectFailed, match=r"within 0\.1 s"):
                await pool.call(address, Command(1), timeout=60)
            await pool.aclose()


async def test_a_silent_connection_to_a_tls_port_is_idle(contexts: Contexts) -> None:
    async with serving(echo, tls=contexts.server, idle_timeout=0.1) as listening, dialled(listening) as peer:
        assert await peer.receive() is None


async def test_a_client_that_leaves_in_the_handshake(contexts: Contexts) -> None:
    async with serving(echo, tls=contexts.server) as listening:
        for first in (b"", HELLO):
            async with dialled(listening) as peer:
                await peer.send_bytes(first)
            await until(lambda: not listening.connections)
        async with pool_of(contexts.client) as pool:
            assert (await pool.call(listening.address, Command(1), timeout=60)).code == 0


async def test_cancelled_callers_tear_no_tls_frame(contexts: Contexts) -> None:
    recorder = Recorder(lambda request, _: success(request.ext))
    async with serving(recorder.at_once, tls=contexts.server) as listening, pool_of(contexts.client) as pool:
        await pool.call(listening.address, Command(1, {"n": "0"}), timeout=60)

        async def call(number: int) -> None:
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_after, scope, number * 3)
                await pool.call(listening.address, Command(10, {"n": str(number)}, bytes(200_000)), timeout=20)

        async def cancel_after(scope: trio.CancelScope, ticks: int) -> None:
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            for number in range(1, 40):
                nursery.start_soon(call, number)
        answer = await pool.call(listening.address, Command(1, {"n": "last"}), timeout=20)
        assert answer.ext["n"] == "last"
        assert all(len(request.body) == 200_000 for request in recorder.requests[1:-1])


async def test_a_tls_connection_that_ends_fails_its_calls(contexts: Contexts) -> None:
    recorder = Recorder()
    async with serving(recorder.held, tls=contexts.server) as listening, pool_of(contexts.client) as pool:

        async def call() -> None:
            with pytest.raises(ConnectionClosed) as caught:
                await pool.call(listening.address, Command(11), timeout=500)
            assert caught.value.request_left

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
            await until(lambda: recorder.running == 5)
            await listening.aclose()


class CountingContext(ssl.SSLContext):
    """A server's settings that count the handshakes which begin."""

    begun = 0

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        type(self).begun += 1
        return super().wrap_bio(*args, **options)


async def test_handshakes_begin_one_after_the_other() -> None:
    context = CountingContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    begun = [0]
    async with serving(echo, tls=context) as listening, AsyncExitStack() as stack:
        ends = [await stack.enter_async_context(dialled(listening)) for _ in range(40)]
        await until(lambda: len(listening.connections) == 40)
        await wait_all_tasks_blocked()
        for end in ends:  # without a checkpoint, so that all of them have come when the server looks
            os.write(end.end.fileno(), HELLO)
        with trio.fail_after(60):
            while begun[-1] < 40:
                await trio.lowlevel.checkpoint()
                begun.append(CountingContext.begun)
    assert max(later - earlier for earlier, later in pairwise(begun)) == 1
