"""A connection against a peer that is only a socket: strange answers, garbage, half frames, impossible lengths."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pyrmq_core.errors import ConnectionClosed
from pyrmq_core.network.connection.peer import Peer
from pyrmq_core.network.connection.read_slice import COMMANDS_AT_ONCE, FIRST_COMMANDS, SECONDS_AT_ONCE
from pyrmq_core.network.connection.stall_detector import ConnectionTimeouts
from pyrmq_core.network.server import Listening
from pyrmq_core.protocol.framing.command import NO_FIELDS, Command, success
from pyrmq_core.protocol.framing.frame import KEPT_BUFFER_BYTES, encode_frame
from tests.network.ends import Recorder, against_socket, dialled, echo, serving, until


async def test_an_answer_with_an_unknown_number_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Command] = []
    async with against_socket() as (connection, peer), trio.open_nursery() as nursery:

        async def call() -> None:
            answers.append(await connection.call(Command(105), timeout=60))

        nursery.start_soon(call)
        request = await peer.receive()
        assert request is not None
        with caplog.at_level(logging.DEBUG, "pyrmq_core.network"):
            stray = Command(0, NO_FIELDS, opaque=request.opaque + 1, flag=1)
            await peer.send(stray, request.answered(success(body=b"right")), request.answered(success(body=b"again")))
            await until(lambda: caplog.text.count("which no call waits for") == 2 and bool(answers))
        assert [answer.body for answer in answers] == [b"right"]
        assert not connection.is_closed


async def test_an_answer_to_a_one_way_request_is_ignored() -> None:
    async with against_socket() as (connection, peer):
        await connection.send_oneway(Command(15), timeout=60)
        request = await peer.receive()
        assert request is not None
        await peer.send(request.answered(success()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(connection.call, Command(11), timeout=60))
            second = await peer.receive()
            assert second is not None
            await peer.send(second.answered(success()))


@pytest.mark.parametrize("waits", [False, True])
async def test_a_one_way_request_is_never_answered(waits: bool) -> None:
    recorder = Recorder()
    recorder.gate.set()
    async with against_socket(recorder.held if waits else recorder.at_once) as (_, peer):
        await peer.send(Command(15, opaque=1).oneway(), Command(15, opaque=2).oneway(), Command(11, opaque=3))
        answer = await peer.receive()
        assert answer is not None
        assert answer.opaque == 3
        assert len(recorder.requests) == 3


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "two gigabytes": (0x7FFFFFFF).to_bytes(4, "big"),
    "sixteen megabytes and one": (16 * 1024 * 1024 - 3).to_bytes(4, "big"),
    "zero length": bytes(12),
    "header longer than frame": bytes.fromhex("0000000e0000000b"),
    "unknown encoding": bytes.fromhex("000000060200000000000000"),
    "not JSON": bytes.fromhex("00000006000000027b7b"),
    "TLS": bytes.fromhex("160301020001000001fc0303"),
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_ends_the_connection_with_one_line_in_the_log(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with against_socket(echo) as (connection, peer), trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(ConnectionClosed, match="what is not RocketMQ's") as caught:
                await connection.call(Command(105), timeout=50)
            assert caught.value.request_left

        nursery.start_soon(call)
        assert await peer.receive() is not None
        with caplog.at_level(logging.INFO):
            await peer.send_bytes(GARBAGE[name])
            await connection.wait_closed()
    assert len(caplog.records) == 1
    assert connection.address in caplog.text


async def test_whole_requests_before_garbage_are_answered() -> None:
    async with against_socket(echo) as (_, peer):
        await peer.send_bytes(encode_frame(Command(1, opaque=5)) + GARBAGE["http"])
        answer = await peer.receive()
        assert answer is not None
        assert answer.opaque == 5
        assert await peer.receive() is None


async def test_half_a_frame_for_ever_ends_its_connection(autojump_clock: MockClock) -> None:
    frame = encode_frame(Command(1, body=bytes(1000)))
    async with against_socket(echo, limits=ConnectionTimeouts(frame=30)) as (connection, peer):
        await peer.send_bytes(frame + frame[:-1])
        started = trio.current_time()
        await connection.wait_closed()
        assert 30 <= trio.current_time() - started <= 40
        assert "did not complete a frame within 30 s" in repr(connection)


async def test_a_frame_may_take_its_time(autojump_clock: MockClock) -> None:
    frame = encode_frame(Command(1, opaque=9))
    async with against_socket(echo, limits=ConnectionTimeouts(frame=30)) as (connection, peer):
        for position in range(0, len(frame), 10):
            await trio.sleep(2)
            await peer.send_bytes(frame[position : position + 10])
        answer = await peer.receive()
        assert answer is not None
        assert answer.opaque == 9
        assert not connection.is_closed


async def test_a_peer_that_does_not_read_its_answers_is_not_read(autojump_clock: MockClock) -> None:
    recorder = Recorder(lambda request, _: success(body=bytes(4 * 1024 * 1024)))
    async with against_socket(recorder.at_once, limits=ConnectionTimeouts(stall=60)) as (connection, peer):

        async def flood() -> None:
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                await peer.send(*(Command(11, body=bytes(60_000)) for _ in range(1000)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            await connection.wait_closed()
        assert "read nothing for 60 s" in repr(connection)
        assert len(recorder.requests) < 20


async def test_a_peer_that_reads_again_gets_all_answers() -> None:
    async with against_socket(Recorder(lambda *_: success(body=bytes(4 * 1024 * 1024))).at_once) as (_, peer):

        async def flood() -> None:
            for opaque in range(30):
                await peer.send(Command(11, opaque=opaque))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            for opaque in range(30):
                answer = await peer.receive()
                assert answer is not None
                assert (answer.opaque, len(answer.body)) == (opaque, 4 * 1024 * 1024)


async def test_requests_under_way_are_bounded_by_not_reading() -> None:
    recorder = Recorder()
    async with against_socket(recorder.held, max_requests=7) as (connection, peer), trio.open_nursery() as nursery:
        await peer.send(*(Command(11, opaque=opaque) for opaque in range(100)))
        await until(lambda: recorder.running == 7)
        await trio.testing.wait_all_tasks_blocked()
        assert len(recorder.requests) == 7
        assert connection._read_slice.turns.reading == 0  # one that waits takes nothing from the slice of the others
        nursery.start_soon(partial(connection.send_oneway, Command(40), timeout=60))
        notice = await peer.receive()
        assert notice is not None
        assert notice.code == 40
        recorder.gate.set()
        answered = [await peer.receive() for _ in range(100)]
        assert sorted(answer.opaque for answer in answered if answer) == list(range(100))
        assert recorder.most_running == 7
        assert connection._read_slice.turns.reading == 0


async def test_a_connection_idles_only_so_long_and_one_that_is_used_does_not_idle(autojump_clock: MockClock) -> None:
    async with against_socket(echo, limits=ConnectionTimeouts(idle=120)) as (connection, peer):
        for _ in range(5):
            await trio.sleep(119)
            await peer.send(Command(1))
            assert await peer.receive() is not None
        started = trio.current_time()
        await connection.wait_closed()
        assert 120 <= trio.current_time() - started <= 125
        assert "nothing came or went for 120 s" in repr(connection)


async def test_a_flood_of_requests_lets_others_run() -> None:
    recorder = Recorder()
    seen: list[int] = []

    async def look() -> None:
        while True:
            seen.append(len(recorder.requests))
            await trio.lowlevel.checkpoint()

    async with against_socket(recorder.at_once) as (_, peer), trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await peer.send(*(Command(1, opaque=opaque) for opaque in range(1000)))
        answers = [await peer.receive() for _ in range(1000)]
        assert [answer.opaque for answer in answers if answer] == list(range(1000))
        nursery.cancel_scope.cancel()
    steps = [later - earlier for earlier, later in pairwise(seen)]
    assert max(steps) <= 2 * COMMANDS_AT_ONCE


async def test_connections_that_flood_together_share_the_slice_of_one() -> None:
    recorder = Recorder()
    seen: list[int] = []
    async with flooded(recorder, 150, 100):
        while len(recorder.requests) < 150 * 100:
            seen.append(len(recorder.requests))
            await trio.lowlevel.checkpoint()
    # The first turns are longer: each connection begins at once, and shares with those before it alone.
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 8 * COMMANDS_AT_ONCE + 150 * FIRST_COMMANDS
    assert len(seen) > 150 * (100 - FIRST_COMMANDS) / COMMANDS_AT_ONCE - 10


async def test_a_client_with_few_questions_waits_for_one_slice_of_those_that_flood() -> None:
    recorder = Recorder()
    seen: list[int] = []
    async with flooded(recorder, 150, 100) as listening, dialled(listening) as client:
        await until(lambda: len(recorder.requests) > 150 * 10)
        for _ in range(20):
            before = len(recorder.requests)
            await client.send(*(Command(2, opaque=opaque) for opaque in range(FIRST_COMMANDS)))
            for _ in range(FIRST_COMMANDS):
                assert await client.receive() is not None
            seen.append(len(recorder.requests) - before)
        assert len(recorder.requests) < 150 * 100
    # In one turn each, the questions are read and the answers written; tasks of a turn run in any order.
    assert sorted(seen)[10] <= 3 * COMMANDS_AT_ONCE


@asynccontextmanager
async def flooded(recorder: Recorder, connections: int, requests: int) -> AsyncIterator[Listening]:
    """Yields a server to which each connection has sent its requests before the server looks."""
    flood = b"".join(encode_frame(Command(1, opaque=opaque)) for opaque in range(requests))
    with trio.fail_after(60):
        async with serving(recorder.at_once) as listening, AsyncExitStack() as stack:
            ends = [await stack.enter_async_context(dialled(listening)) for _ in range(connections)]
            await until(lambda: len(listening.connections) == connections)
            await wait_all_tasks_blocked()
            for end in ends:
                assert os.write(end.end.fileno(), flood) == len(flood)
            yield listening


async def test_requests_that_take_long_let_others_run_after_few_of_them() -> None:
    requests = 0
    seen: list[int] = []

    def costly(request: Command, _: Peer) -> Command:
        nonlocal requests
        requests += 1
        ends = time.monotonic() + SECONDS_AT_ONCE / 2
        while time.monotonic() < ends:
            pass
        return success()

    async def look() -> None:
        while True:
            seen.append(requests)
            await trio.lowlevel.checkpoint()

    async with against_socket(costly) as (_, peer), trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await peer.send(*(Command(1, opaque=opaque) for opaque in range(100)))
        for _ in range(100):
            assert await peer.receive() is not None
        nursery.cancel_scope.cancel()
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 4


async def test_connections_that_end_together_leave_others_their_turn() -> None:
    async with serving(echo) as listening, AsyncExitStack() as stack:
        ends = [await stack.enter_async_context(dialled(listening)) for _ in range(40)]
        await until(lambda: len(listening.connections) == 40)
        await wait_all_tasks_blocked()
        connections, closed = listening.connections, [0]
        for end in ends:  # without a checkpoint, so that all have ended when the server looks
            end.end.shutdown(trio.socket.SHUT_WR)
        with trio.fail_after(60):
            while closed[-1] < 40:
                await trio.lowlevel.checkpoint()
                closed.append(sum(connection.is_closed for connection in connections))
    assert max(later - earlier for earlier, later in pairwise(closed)) <= 2


async def test_an_idle_connection_gives_its_buffer_back(autojump_clock: MockClock) -> None:
    async with against_socket(echo) as (connection, peer):
        await peer.send(Command(1, body=bytes(KEPT_BUFFER_BYTES // 4)))
        assert await peer.receive() is not None
        assert len(connection._decoder._buffer) > 1_000_000
        await trio.sleep(5)
        assert len(connection._decoder._buffer) == 0
        await peer.send(Command(1, opaque=3))
        answer = await peer.receive()
        assert answer is not None
        assert answer.opaque == 3


async def test_a_reset_differs_from_a_close() -> None:
    async with against_socket(echo) as (connection, peer), trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(ConnectionClosed, match="the other end closed it"):
                await connection.call(Command(105), timeout=50)

        nursery.start_soon(call)
        assert await peer.receive() is not None
        peer.end.shutdown(trio.socket.SHUT_WR)
        await connection.wait_closed()


async def test_a_flood_of_unrequested_answers_lets_others_run() -> None:
    counts = [0]
    async with against_socket() as (connection, peer), trio.open_nursery() as nursery:
        nursery.start_soon(peer.send, *(Command(0, opaque=opaque, flag=1) for opaque in range(20_000)))
        with trio.fail_after(30):
            while counts[-1] < 20_000:
                await trio.lowlevel.checkpoint()
                counts.append(connection._commands)
        assert not connection.is_closed
    assert max(later - earlier for earlier, later in pairwise(counts)) <= 2 * COMMANDS_AT_ONCE
