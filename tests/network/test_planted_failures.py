"""A failure while a connection is served ends at most that one: failures of every kind, at every place."""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pyrmq_core.errors import CallTimeout, ConnectFailed, ConnectionClosed, HeaderError, NetworkError
from pyrmq_core.network import BulkCall, ConnectionPool, Peer
from pyrmq_core.network.connection.calls import DeadlineSweeper
from pyrmq_core.network.connection.connection import Connection
from pyrmq_core.network.connection.wire import Chunk, Wire
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.frame import FrameDecoder, RequestForm
from tests.network.ends import against_socket, dialled, echo, running, serving, until, wires


class WithoutTextError(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")


FAILURES: Sequence[Exception] = [
    RecursionError("maximum recursion depth exceeded"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    MemoryError(),
    ValueError("half a surrogate \ud800"),
    struct.error("'i' format requires -2147483648 <= number <= 2147483647"),
    KeyError("queueId"),
    AssertionError(),
    StopIteration(),
    OSError(5, "Input/output error"),
    WithoutTextError(),
    ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
]
failures = pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)


class Fields(Mapping[str, str]):
    """Header fields that cannot be encoded."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def __getitem__(self, name: str) -> str:
        raise self._failure

    def __iter__(self) -> Iterator[str]:
        raise self._failure

    def __len__(self) -> int:
        return 1


def at_once(failure: Exception, _: Peer) -> Command:
    raise failure


async def later(failure: Exception, _: Peer) -> Command:
    await trio.lowlevel.checkpoint()
    raise failure


def not_encoded(failure: Exception, _: Peer) -> Command:
    return Command(0, Fields(failure))


async def not_encoded_later(failure: Exception, _: Peer) -> Command:
    await trio.lowlevel.checkpoint()
    return Command(0, Fields(failure))


def answered_without_body(_: Exception, peer: Peer) -> Command:
    return Command(0, body=None)  # type: ignore[arg-type]


PLACES: Sequence[Callable[[Exception, Peer], Command | Awaitable[Command | None] | None]]
PLACES = (at_once, later, not_encoded, not_encoded_later, answered_without_body)
places = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)


@failures
@places
async def test_a_request_that_fails_is_answered_system_error(
    failure: Exception, place: Callable[[Exception, Peer], Command | Awaitable[Command | None] | None]
) -> None:
    def handle(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        return place(failure, peer) if request.code == 66 else echo(request, peer)

    async with serving(handle) as listening, dialled(listening) as stranger, dialled(listening) as other:
        for _ in range(2):
            await stranger.send(Command(66, opaque=1))
            answer = await stranger.receive()
            assert answer is not None
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark
        for end in (stranger, other):
            await end.send(Command(1, opaque=2))
            answer = await end.receive()
            assert answer is not None
            assert answer.code == 0


@failures
@places
async def test_what_a_server_asks_ends_no_client(
    failure: Exception, place: Callable[[Exception, Peer], Command | Awaitable[Command | None] | None]
) -> None:
    peers: list[Peer] = []

    def serve_client(request: Command, peer: Peer) -> Command:
        peers.append(peer)
        return success()

    async with serving(serve_client) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, handler=lambda _, peer: place(failure, peer))
        await pool.call(listening.address, Command(1), timeout=60)
        answer = await peers[0].connection.call(Command(220), timeout=60)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (await pool.call(listening.address, Command(1), timeout=60)).code == 0
        await pool.aclose()


async def test_failing_requests_write_one_line_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    def handle(_: Command, __: Peer) -> Command:
        raise ValueError("planted")

    async with against_socket(handle) as (_, peer):
        for opaque in range(50):
            await peer.send(Command(66, opaque=opaque))
            assert await peer.receive() is not None
    assert caplog.text.count("planted") == 1


class BrokenWire:
    """A wire that fails at one place, once it is used."""

    def __init__(self, wire: Wire, place: str, failure: Exception) -> None:
        self._wire, self._place, self._failure = wire, place, failure
        self.address, self.local_address = wire.address, wire.local_address
        self.taken = 0

    def _fail_at(self, place: str) -> None:
        if self._place == place:
            raise self._failure

    def send_nowait(self, chunks: Sequence[Chunk]) -> int:
        self._fail_at("send_nowait")
        if self._place in ("wait_sendable", "send_all"):
            return 0
        return self._wire.send_nowait(chunks)

    async def wait_sendable(self) -> bool:
        self._fail_at("wait_sendable")
        return self._place != "send_all"

    async def send_all(self, data: Chunk) -> None:
        self._fail_at("send_all")

    async def receive(self, decoder: FrameDecoder) -> int:
        count = await self._wire.receive(decoder)
        self._fail_at("receive")
        return count

    async def aclose(self) -> None:
        await self._wire.aclose()
        self._fail_at("aclose")


@failures
@pytest.mark.parametrize("place", ["send_nowait", "wait_sendable", "send_all", "receive", "aclose"])
async def test_a_wire_that_fails_ends_its_connection_alone(failure: Exception, place: str) -> None:
    here, there = wires("socket")
    closed: list[Connection] = []
    broken = BrokenWire(here, place, failure)
    async with running(broken, echo, on_close=closed.append) as connection, running(there) as other:
        if place == "aclose":
            connection.close()
        with pytest.raises(ConnectionClosed):
            await other.call(Command(1), timeout=60)
        with trio.fail_after(60):
            await connection.wait_closed()
        await wait_all_tasks_blocked()
        assert closed == [connection]


@failures
async def test_an_opening_that_fails_ends_its_connection_alone(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def opening() -> Wire:
        raise failure

    here, there = wires("socket")
    async with running(here, opening=opening) as connection, running(there) as other:
        with pytest.raises(ConnectionClosed):
            await other.call(Command(1), timeout=60)
        await connection.wait_closed()
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 1


@failures
async def test_an_on_close_that_fails_ends_nothing(failure: Exception) -> None:
    def on_close(_: Peer) -> None:
        raise failure

    async with serving(echo, on_close=on_close) as listening:
        for _ in range(2):
            async with dialled(listening) as stranger:
                await stranger.send(Command(1, opaque=1))
                assert await stranger.receive() is not None
            await until(lambda: not listening.connections)


async def test_a_handler_that_fails_while_its_connection_ends_ends_nothing_else() -> None:
    async def fail_at_the_end(_: Command, __: Peer) -> Command | None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("planted")

    async with serving(fail_at_the_end) as listening:
        for _ in range(2):
            async with dialled(listening) as stranger:
                await stranger.send(Command(1, opaque=1))
                await until(lambda: listening.connections[0]._under_way.count == 1)
            await until(lambda: not listening.connections)


@pytest.mark.parametrize("waits", [False, True])
async def test_an_interrupt_in_a_handler_is_no_failure_of_its_connection(waits: bool) -> None:
    def interrupted(_: Command, __: Peer) -> Command:
        raise KeyboardInterrupt

    async def interrupted_later(_: Command, __: Peer) -> Command:
        raise KeyboardInterrupt

    here, there = wires("socket")
    other = Connection(there, sweeper=DeadlineSweeper())
    connection = Connection(here, sweeper=DeadlineSweeper(), handler=interrupted_later if waits else interrupted)

    async def ask() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(other.run)
            await nursery.start(connection.run)
            await other.send_oneway(Command(1), timeout=60)
            await trio.sleep(5)

    with pytest.raises(BaseExceptionGroup) as raised:
        await ask()
    assert raised.group_contains(KeyboardInterrupt)


@failures
async def test_a_call_that_cannot_be_encoded_fails_alone(failure: Exception) -> None:
    async with against_socket() as (connection, peer):
        with pytest.raises(HeaderError, match="cannot be written"):
            await connection.call(Command(105, Fields(failure)), timeout=60)
        with pytest.raises(HeaderError):
            connection.post(Command(105, Fields(failure)), timeout=60, done=lambda _: None)
        await connection.send_oneway(Command(15), timeout=60)
        assert await peer.receive() is not None
        assert connection.calls_under_way == 0


class Stretch(BulkCall):
    """A posted request of a form that records its end, and may fail then."""

    __slots__ = ("ended", "failure")

    def __init__(self, numbers: tuple[int, ...], failure: Exception | None = None) -> None:
        self.numbers, self.failure = numbers, failure
        self.ended: list[object] = []

    def end(self, result: object) -> None:
        self.ended.append(result)
        if self.failure is not None:
            raise self.failure


@failures
async def test_one_of_many_that_cannot_be_encoded_fails_alone(failure: Exception) -> None:
    form = RequestForm(Command(11, {"queueOffset": ""}), ["queueOffset"])
    unfit, fit = Stretch(("no number",), failure), Stretch((7,), failure)  # type: ignore[arg-type]
    async with against_socket() as (connection, peer):
        connection.post_all(form, [unfit, fit], timeout=60)
        request = await peer.receive()
        assert request is not None
        assert request.ext["queueOffset"] == "7"
        await peer.send(request.answered(success()))
        await until(lambda: bool(fit.ended))
        assert isinstance(unfit.ended[0], HeaderError)
        assert isinstance(fit.ended[0], Command)
        assert not connection.is_closed


@failures
@pytest.mark.parametrize("end", ["answer", "timeout", "close"])
async def test_a_caller_that_fails_at_the_end_of_its_call_fails_alone(
    failure: Exception, end: str, autojump_clock: MockClock
) -> None:
    ended: list[Command | NetworkError] = []

    def failing(result: Command | NetworkError) -> None:
        ended.append(result)
        raise failure

    async with against_socket() as (connection, peer):
        stretch = Stretch((1,), failure)
        connection.post(Command(11), timeout=3, done=failing)
        connection.post_all(RequestForm(Command(11, {"queueOffset": ""}), ["queueOffset"]), [stretch], timeout=3)
        requests = [await peer.receive(), await peer.receive()]
        if end == "answer":
            await peer.send(*(request.answered(success()) for request in requests if request is not None))
        elif end == "close":
            connection.close()
        with trio.fail_after(30):
            while not (ended and stretch.ended):  # noqa: ASYNC110 - it ends in a callback
                await trio.sleep(0.1)
        expected = {"answer": Command, "timeout": CallTimeout, "close": ConnectionClosed}[end]
        assert isinstance(ended[0], expected)
        assert isinstance(stretch.ended[0], expected)
        assert connection.is_closed == (end == "close")


@failures
async def test_an_on_open_or_on_close_that_fails_ends_no_pool(failure: Exception) -> None:
    def fail(_: str) -> None:
        raise failure

    async with serving(echo) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, on_open=fail, on_close=fail)
        for _ in range(2):
            assert (await pool.call(listening.address, Command(1), timeout=60)).code == 0
            pool.close(listening.address)
        await pool.aclose()


@pytest.mark.parametrize("host", ["a\0b", "a" * 300, "a..b", "\ud800", "[::g]"])
async def test_an_address_that_no_socket_takes_fails_its_callers_alone(host: str) -> None:
    async with serving(echo) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        with pytest.raises(ConnectFailed):
            await pool.call(f"{host}:9876", Command(1), timeout=60)
        assert (await pool.call(listening.address, Command(1), timeout=60)).code == 0
        await pool.aclose()
