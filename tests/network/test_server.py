"""A server on loopback: its addresses, its limit of connections, the ones it closes, and a clean end."""

from __future__ import annotations

import gc
import logging
import os
import socket
import time
import tracemalloc
from collections.abc import Awaitable
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core.errors import ConnectionClosed, InvalidArgument, NetworkError
from pyrmq_core.network import ConnectionPool, Listening, Peer, ServerBounds, TlsMode, serve
from pyrmq_core.network import listener as listening_module
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.frame import encode_frame
from tests.network.ends import Recorder, dialled, echo, serving, until


async def test_a_free_port_is_found_and_named() -> None:
    async with serving(echo) as listening:
        assert listening.host == "127.0.0.1"
        assert listening.port > 0
        assert listening.address == f"127.0.0.1:{listening.port}"
        async with dialled(listening) as peer:
            await peer.send(Command(105, {"topic": "T"}, opaque=7))
            answer = await peer.receive()
            assert answer is not None
            assert (answer.opaque, answer.is_response, dict(answer.ext)) == (7, True, {"topic": "T"})


async def test_an_ipv6_host() -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):  # noqa: ASYNC240 - one look, no waiting
        pytest.skip("this machine has no IPv6")
    async with trio.open_nursery() as nursery:
        listening: Listening = await nursery.start(partial(serve, echo, "::1", 0))
        assert listening.address == f"[::1]:{listening.port}"
        pool = ConnectionPool(nursery)
        assert (await pool.call(listening.address, Command(1), timeout=60)).code == 0
        await pool.aclose()
        await listening.aclose()


async def test_a_taken_port_is_one_clear_line() -> None:
    async with serving(echo) as listening:
        with pytest.raises(
            NetworkError, match=f"cannot listen on {listening.address}: Address already in use"
        ) as caught:
            await serve(echo, listening.host, listening.port)
        assert caught.value.address == listening.address


async def test_without_a_port_so_far_below_there_is_no_fast_port() -> None:
    async with serving(echo, fast_port_below=70_000) as listening:
        assert listening.port > 0


async def test_a_host_that_is_not_ours_is_one_clear_line() -> None:
    with pytest.raises(NetworkError, match=r"cannot listen on 192\.0\.2\.1:0"):
        await serve(echo, "192.0.2.1", 0)
    with pytest.raises(InvalidArgument, match="give an address of this machine"):
        await serve(echo, "no such host", 0)


async def test_a_port_is_free_again_after_aclose() -> None:
    async with serving(echo) as listening:
        port = listening.port
        async with dialled(listening) as peer:
            await peer.send(Command(1))
            assert await peer.receive() is not None
    async with trio.open_nursery() as nursery:
        again: Listening = await nursery.start(partial(serve, echo, "127.0.0.1", port))
        assert again.port == port
        await again.aclose()


async def test_the_peer_knows_both_ends() -> None:
    recorder = Recorder()
    async with serving(recorder.at_once) as listening:
        async with dialled(listening) as first, dialled(listening) as second:
            for peer in (first, second, first):
                await peer.send(Command(1))
                assert await peer.receive() is not None
            earlier, other, again = recorder.peers
            assert earlier is again
            assert earlier != other
            assert len({earlier, other}) == 2
            assert (earlier.ip, earlier.port) == first.end.getsockname()
            assert earlier.address == f"{earlier.ip}:{earlier.port}"
            assert earlier.local_address == listening.address
            assert earlier.address in repr(earlier)
            assert set(listening.connections) == {earlier.connection, other.connection}
        await until(lambda: not listening.connections)


async def test_on_close_is_called_once_for_each_connection() -> None:
    closed: list[Peer] = []
    recorder = Recorder()
    async with serving(recorder.at_once, on_close=closed.append) as listening:
        async with dialled(listening) as peer:
            await peer.send(Command(1))
            await peer.receive()
        await until(lambda: len(closed) == 1)
        async with dialled(listening) as peer:
            await peer.send(Command(1))
            await peer.receive()
            recorder.peers[-1].connection.close()
            await until(lambda: len(closed) == 2)
            assert await peer.receive() is None
        async with dialled(listening) as peer:
            await peer.send(Command(1))
            await peer.receive()
            await listening.aclose()
            assert len(closed) == 3
    assert closed == recorder.peers


async def test_an_on_close_that_fails_costs_no_other_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail(peer: Peer) -> None:
        raise RuntimeError("cannot say goodbye")

    async with serving(echo, on_close=fail) as listening:
        for _ in range(2):
            async with dialled(listening) as peer:
                await peer.send(Command(1))
                assert await peer.receive() is not None
            await until(lambda: not listening.connections)
    assert caplog.text.count("RuntimeError: cannot say goodbye") == 2


async def test_a_server_calls_its_client_back() -> None:
    recorder = Recorder()
    requested = Recorder()
    async with serving(recorder.at_once) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, handler=requested.at_once)
        await pool.call(listening.address, Command(34), timeout=60)
        connection = recorder.peers[0].connection
        answer = await connection.call(Command(39, {"id": "x"}), timeout=60)
        assert dict(answer.ext) == {"id": "x"}
        await connection.send_oneway(Command(40), timeout=60)
        await until(lambda: len(requested.requests) == 2)
        assert requested.peers[0].address == listening.address
        await pool.aclose()


async def test_more_connections_than_allowed_are_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        serving(echo, bounds=ServerBounds(connections=2)) as listening,
        dialled(listening) as a,
        dialled(listening) as b,
    ):
        for peer in (a, b):
            await peer.send(Command(1))
            assert await peer.receive() is not None
        for _ in range(3):
            async with dialled(listening) as refused:
                assert await refused.receive() is None
        assert len(caplog.records) == 1
        assert "2 connections, its limit" in caplog.text
        b.end.close()
        await until(lambda: len(listening.connections) == 1)
        async with dialled(listening) as let_in:
            await let_in.send(Command(1))
            assert await let_in.receive() is not None


async def test_idle_connections_are_closed_and_busy_ones_are_not(jumping_clock: MockClock) -> None:
    recorder = Recorder()
    async with (
        serving(recorder.held, idle_timeout=20) as listening,
        dialled(listening) as idle,
        dialled(listening) as held,
    ):
        started = trio.current_time()
        await held.send(Command(11))
        await recorder.came.wait()
        assert await idle.receive() is None
        assert 20 <= trio.current_time() - started <= 25
        assert [connection.peer for connection in listening.connections] == recorder.peers
        recorder.gate.set()
        assert await held.receive() is not None
        assert await held.receive() is None


async def test_half_a_frame_costs_its_sender_only() -> None:
    async with serving(echo, frame_timeout=0.2) as listening, dialled(listening) as bad, dialled(listening) as good:
        await bad.send_bytes(encode_frame(Command(1))[:-1])
        assert await bad.receive() is None
        await good.send(Command(1))
        assert await good.receive() is not None


async def test_garbage_costs_its_sender_only(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo) as listening, dialled(listening) as good:
        for garbage in (b"\xff" * 100, (2**31 - 1).to_bytes(4, "big") + bytes(100), b"GET / HTTP/1.0\r\n\r\n"):
            async with dialled(listening) as bad:
                await bad.send_bytes(garbage)
                assert await bad.receive() is None
        await good.send(Command(1))
        assert await good.receive() is not None
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 3


async def test_a_slow_request_of_one_does_not_hold_up_another() -> None:
    recorder = Recorder()

    def pulls_wait(request: Command, peer: Peer) -> Awaitable[Command | None] | Command:
        return recorder.held(request, peer) if request.code == 11 else success()

    async with serving(pulls_wait) as listening, dialled(listening) as slow, dialled(listening) as quick:
        await slow.send(*(Command(11) for _ in range(50)))
        await until(lambda: recorder.running == 50)
        await quick.send(Command(34, opaque=8))
        answer = await quick.receive()
        assert answer is not None
        assert answer.opaque == 8


async def test_a_stopped_server_fails_its_callers_at_once_and_leaves_no_task() -> None:
    recorder = Recorder()
    errors: list[bool] = []

    async def call() -> None:
        with pytest.raises(ConnectionClosed) as caught:
            await pool.call(listening.address, Command(11), timeout=500)
        errors.append(caught.value.request_left)

    async with trio.open_nursery() as nursery:
        listening: Listening = await nursery.start(partial(serve, recorder.held, "127.0.0.1", 0))
        pool = ConnectionPool(nursery)
        async with trio.open_nursery() as callers:
            for _ in range(20):
                callers.start_soon(call)
            await until(lambda: recorder.running == 20)
            await listening.aclose()
            assert recorder.running == 0
        assert errors == [True] * 20
        assert not listening.connections
        await pool.aclose()
        assert not nursery.child_tasks


async def test_a_cancelled_server_closes_everything() -> None:
    async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
        listening: Listening = await nursery.start(partial(serve, echo, "127.0.0.1", 0))
        async with dialled(listening) as peer:
            await peer.send(Command(1))
            assert await peer.receive() is not None
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                assert await peer.receive() is None
        del outer


async def test_no_room_for_a_connection_is_waited_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening_module, "NO_ROOM_PAUSE_SECONDS", 0.001)

    class FullTwice:
        def __init__(self, listener: socket.socket) -> None:
            self.listener = listener
            self.refusals = 2

        def fileno(self) -> int:
            return self.listener.fileno()

        def accept(self) -> tuple[socket.socket, object]:
            if self.refusals:
                self.refusals -= 1
                raise OSError(24, "Too many open files")
            return self.listener.accept()

    listener = await listening_module.open_listener("127.0.0.1", 0)
    with listener, socket.create_connection(listener.getsockname()):
        accepted = await listening_module.accept(FullTwice(listener), RareLine())  # type: ignore[arg-type]
        accepted.close()
    assert len(caplog.records) == 1
    assert "raise the limit of open files" in caplog.text


async def test_connections_that_end_before_they_are_accepted_leave_other_tasks_their_turn() -> None:
    class Aborting:
        calls = 0

        def accept(self) -> tuple[socket.socket, object]:
            self.calls += 1
            assert self.calls < 10_000, "no other task runs"
            raise ConnectionAbortedError(103, "Software caused connection abort")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listening_module.accept, Aborting(), RareLine())  # type: ignore[arg-type]
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_connections_are_accepted_at_a_rate_also_where_other_tasks_take_long() -> None:
    """150 wait for a server whose other tasks take 50 ms a turn: of each turn's time some 50 are accepted."""
    accepted = [0]
    async with serving(echo) as listening, trio.open_nursery() as nursery:
        ends = [socket.create_connection((listening.host, listening.port)) for _ in range(150)]

        async def work() -> None:
            while True:
                ends_at = time.monotonic() + 0.05
                while time.monotonic() < ends_at:
                    pass
                await trio.lowlevel.checkpoint()
                accepted.append(len(listening.connections))

        nursery.start_soon(work)
        await until(lambda: len(listening.connections) == 150)
        nursery.cancel_scope.cancel()
    for end in ends:
        end.close()
    assert len([count for count in accepted if count < 150]) < 20


async def test_enforced_tls_without_a_certificate_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no SSLContext is given"):
        await serve(echo, "127.0.0.1", 0, tls_mode=TlsMode.ENFORCING)


async def test_idle_connections_are_cheap(caplog: pytest.LogCaptureFixture) -> None:
    count = 400
    caplog.set_level(logging.INFO)
    async with serving(echo) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        await pool.call(listening.address, Command(1), timeout=60)
        gc.collect()
        tracemalloc.start()
        try:
            ends = [socket.create_connection((listening.host, listening.port)) for _ in range(count)]
            await until(lambda: len(listening.connections) == count + 1)
            await trio.testing.wait_all_tasks_blocked()
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert used / count < 16_000
        assert (await pool.call(listening.address, Command(1), timeout=60)).code == 0
        for end in ends:
            end.close()
        await pool.aclose()
