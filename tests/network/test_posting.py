"""Posted requests, which have no task: each ends once, and a request posted by an answer is joined with others."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core.errors import CallTimeout, ConnectionClosed, NetworkError
from pyrmq_core.network import ConnectionPool
from pyrmq_core.network.connection import read_slice
from pyrmq_core.network.connection.wire import Chunk, SocketWire
from pyrmq_core.protocol.framing.command import Command, success
from tests.network.ends import KINDS, Recorder, Socket, echo, joined, running, serving, until

LATER = 600.0
both_kinds = pytest.mark.parametrize("kind", KINDS)


@both_kinds
async def test_each_gets_its_answer(kind: str) -> None:
    reported: list[tuple[int, Command | NetworkError]] = []
    async with joined(kind, there=echo) as (here, _):
        for number in range(300):
            request = Command(11, {"n": str(number)})
            here.post(request, timeout=60, done=lambda result, number=number: reported.append((number, result)))  # type: ignore[misc]
        assert reported == []  # never before there is an answer
        await until(lambda: len(reported) == 300)
        assert here.calls_under_way == 0
    assert all(isinstance(result, Command) and result.ext["n"] == str(number) for number, result in reported)


@both_kinds
async def test_one_leads_to_the_next(kind: str) -> None:
    """The callback `done` posts the next request, as a reader does."""
    seen: list[int] = []
    ended = trio.Event()
    async with joined(kind, there=echo) as (here, _):

        def reported(result: Command | NetworkError) -> None:
            assert isinstance(result, Command)
            number = int(result.ext["n"])
            seen.append(number)
            if number < 200:
                here.post(Command(11, {"n": str(number + 10)}), timeout=60, done=reported)
            elif len(seen) == 210:
                ended.set()

        for number in range(10):
            here.post(Command(11, {"n": str(number)}), timeout=60, done=reported)
        with trio.fail_after(60):
            await ended.wait()
    assert sorted(seen) == list(range(210))


@both_kinds
async def test_a_deadline_is_reported(kind: str, autojump_clock: MockClock) -> None:
    recorder = Recorder()
    reported: list[Command | NetworkError] = []
    async with joined(kind, there=recorder.held) as (here, _):
        here.post(Command(11), timeout=3, done=reported.append)
        await trio.sleep(2.5)
        assert reported == []
        await trio.sleep(1)
        (error,) = reported
        assert isinstance(error, CallTimeout)
        assert error.request_left
        recorder.gate.set()
        await here.call(Command(11), timeout=3)
    assert len(reported) == 1


@both_kinds
async def test_a_request_that_an_expired_one_posts_ends_at_its_own_deadline(
    kind: str, autojump_clock: MockClock
) -> None:
    ended: list[float] = []
    async with joined(kind, there=Recorder().held) as (here, _):

        def post_again(_: Command | NetworkError) -> None:
            ended.append(trio.current_time())
            if len(ended) < 3:
                here.post(Command(11), timeout=0.1, done=post_again)

        here.post(Command(11), timeout=0.1, done=post_again)
        await trio.sleep(5)
    assert [later - earlier for earlier, later in pairwise(ended)] == pytest.approx([0.1, 0.1], abs=0.05)


@both_kinds
async def test_the_end_of_the_connection_is_reported(kind: str) -> None:
    recorder = Recorder()
    reported: list[Command | NetworkError] = []
    async with joined(kind, there=recorder.held) as (here, there):
        for _ in range(3):
            here.post(Command(11), timeout=30, done=reported.append)
        await until(lambda: len(recorder.requests) == 3)
        there.close()
        await until(lambda: len(reported) == 3)
        assert all(isinstance(error, ConnectionClosed) for error in reported)
        with pytest.raises(ConnectionClosed):
            here.post(Command(11), timeout=30, done=reported.append)
    assert len(reported) == 3


@both_kinds
async def test_an_abandoned_call_gets_nothing(kind: str) -> None:
    recorder = Recorder()
    reported: list[Command | NetworkError] = []
    async with joined(kind, there=recorder.held) as (here, _):
        forget = here.post(Command(11), timeout=30, done=reported.append)
        await until(lambda: len(recorder.requests) == 1)
        forget()
        assert here.calls_under_way == 0
        recorder.gate.set()
        await here.call(Command(11), timeout=3)
        forget()
    assert reported == []


@both_kinds
@pytest.mark.parametrize("expires", [True, False])
@pytest.mark.parametrize("closes", [True, False])
async def test_an_end_may_abandon_a_call_that_ends_with_it_or_close_the_connection(
    kind: str, expires: bool, closes: bool, autojump_clock: MockClock
) -> None:
    ended: list[str] = []
    async with joined(kind, there=Recorder().held) as (here, _):

        def end(name: str) -> None:
            ended.append(name)
            if closes:
                here.close()
            else:
                forget()

        here.post(Command(11), timeout=3, done=lambda _: end("first"))
        forget = here.post(Command(11), timeout=3, done=lambda _: ended.append("second"))
        here.post(Command(11), timeout=3, done=lambda _: ended.append("third"))
        if not expires:
            here.close()
        await trio.sleep(5)
        assert here.calls_under_way == 0
    assert ended == (["first", "second", "third"] if closes else ["first", "third"])


@both_kinds
async def test_what_is_not_written_yet_is_withdrawn(kind: str) -> None:
    async with joined(kind, there=echo) as (here, _):
        reported: list[Command | NetworkError] = []
        forgets = [here.post(Command(11, {"n": str(number)}), timeout=60, done=reported.append) for number in range(5)]
        for forget in forgets[1:]:
            forget()
        assert (await here.call(Command(12, {"n": "last"}), timeout=60)).ext["n"] == "last"
        assert [result.ext["n"] for result in reported if isinstance(result, Command)] == ["0"]
        assert here.calls_under_way == 0


class CountingWire(SocketWire):
    """A wire that counts its writes."""

    writes = 0

    def send_nowait(self, chunks: Sequence[Chunk]) -> int:
        self.writes += 1
        return super().send_nowait(chunks)


async def test_what_answers_lead_to_is_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty answers that come at once, and are read in one turn, lead to twenty requests in one write."""
    monkeypatch.setattr(read_slice, "SECONDS_AT_ONCE", LATER)
    near, far = socket.socketpair()
    wire = CountingWire(near)
    with closing(far):
        async with running(wire) as here:
            peer = Socket(trio.socket.from_stdlib_socket(far))

            def reported(result: Command | NetworkError) -> None:
                here.post(Command(11, {"again": "yes"}), timeout=60, done=lambda _: None)

            for _ in range(20):
                here.post(Command(11), timeout=60, done=reported)
            requests = [await peer.receive() for _ in range(20)]
            wire.writes = 0
            await peer.send(*(request.answered(success()) for request in requests if request))
            for _ in range(20):
                answer = await peer.receive()
                assert answer is not None
                assert answer.ext == {"again": "yes"}
            assert wire.writes <= 2


async def test_a_pool_gives_its_connection() -> None:
    async with serving(echo) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        connection = await pool.connection(listening.address, timeout=60)
        reported: list[Command | NetworkError] = []
        connection.post(Command(11, {"n": "1"}), timeout=60, done=reported.append)
        await until(lambda: len(reported) == 1)
        assert pool.connections == (connection,)
        await pool.aclose()
