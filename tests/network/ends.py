"""The parts of tests of connections: ends joined in one process, handlers that record, a bare socket as peer."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import Any

import trio
import trio.testing

from pyrmq_core.network import Handler, Listening, Peer, serve
from pyrmq_core.network.connection.calls import DeadlineSweeper
from pyrmq_core.network.connection.connection import Connection
from pyrmq_core.network.connection.stall_detector import ConnectionTimeouts
from pyrmq_core.network.connection.wire import SocketWire, StreamWire, Wire
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.frame import FrameDecoder, encode_frame

KINDS = ("socket", "stream")
HEALTH_SECONDS = 0.5


def wires(kind: str) -> tuple[Wire, Wire]:
    """Returns the two ends of a wire inside this process."""
    if kind == "socket":
        here, there = socket.socketpair()
        return SocketWire(here), SocketWire(there)
    first, other = trio.testing.memory_stream_pair()
    return StreamWire(first, "other:2", "one:1"), StreamWire(other, "one:1", "other:2")


@asynccontextmanager
async def running(wire: Wire, handler: Handler | None = None, **options: Any) -> AsyncIterator[Connection]:
    """Yields a connection over the wire, with a sweeper of its own."""
    sweeper = DeadlineSweeper(HEALTH_SECONDS)
    connection = Connection(wire, sweeper=sweeper, handler=handler, **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweeper.run)
        await nursery.start(connection.run)
        yield connection
        await connection.aclose()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def joined(
    kind: str, here: Handler | None = None, there: Handler | None = None, limits: ConnectionTimeouts | None = None
) -> AsyncIterator[tuple[Connection, Connection]]:
    near, other = wires(kind)
    async with running(near, here, limits=limits) as first, running(other, there, limits=limits) as second:
        yield first, second


@asynccontextmanager
async def against_socket(handler: Handler | None = None, **options: Any) -> AsyncIterator[tuple[Connection, Socket]]:
    """Yields a connection whose other end is a bare socket."""
    here, there = socket.socketpair()
    with closing(there):
        async with running(SocketWire(here), handler, **options) as connection:
            yield connection, Socket(trio.socket.from_stdlib_socket(there))


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> AsyncIterator[Listening]:
    async with trio.open_nursery() as nursery:
        listening: Listening = await nursery.start(partial(serve, handler, "127.0.0.1", 0, **options))
        yield listening
        await listening.aclose()


class Socket:
    """A peer without any of our code but the codec."""

    def __init__(self, end: trio.socket.SocketType) -> None:
        self.end = end
        self._decoder = FrameDecoder()

    async def send(self, *commands: Command) -> None:
        await self.send_bytes(b"".join(encode_frame(command) for command in commands))

    async def send_bytes(self, data: bytes) -> None:
        while data:
            data = data[await self.end.send(data) :]

    async def receive(self) -> Command | None:
        """Returns the next whole command; None when the other end closed."""
        while (command := self._decoder.next_command()) is None:
            try:
                data = await self.end.recv(64 * 1024)
            except ConnectionError:
                return None
            if not data:
                return None
            self._decoder.feed(data)
        return command

    @property
    def torn_bytes(self) -> int:
        """Returns the bytes of a frame that did not come whole."""
        return self._decoder.buffered_bytes


@asynccontextmanager
async def dialled(address: Listening) -> AsyncIterator[Socket]:
    """Yields a bare socket connected to a server."""
    with trio.socket.socket() as end:
        await end.connect((address.host, address.port))
        yield Socket(end)


@contextmanager
def silent_port() -> Iterator[str]:
    """Yields a port that completes connections and never reads or answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def echo(request: Command, peer: Peer) -> Command:
    """Answers with the request's own content."""
    return success(request.ext, request.body)


class Recorder:
    """A handler that records its requests and answers when the test lets it."""

    def __init__(self, answer: Callable[[Command, Peer], Awaitable[Command | None] | Command | None] = echo) -> None:
        self.requests: list[Command] = []
        self.peers: list[Peer] = []
        self.came = trio.Event()
        self.gate = trio.Event()
        self.running = 0
        self.most_running = 0
        self._answer = answer

    async def held(self, request: Command, peer: Peer) -> Command | None:
        """Answers once the gate is open."""
        self._note(request, peer)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        answer = self._answer(request, peer)
        return answer if answer is None or isinstance(answer, Command) else await answer

    def at_once(self, request: Command, peer: Peer) -> Command | None:
        self._note(request, peer)
        answer = self._answer(request, peer)
        if answer is None or isinstance(answer, Command):
            return answer
        raise AssertionError("a handler that answers at once was given one that waits")

    def _note(self, request: Command, peer: Peer) -> None:
        self.requests.append(request)
        self.peers.append(peer)
        self.came.set()


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Lets others run until the condition holds; TooSlowError after a real time limit."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to tell it
            await trio.sleep(0.001)
