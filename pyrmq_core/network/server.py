"""`serve`: a server that answers requests on one port, with and without TLS."""

from __future__ import annotations

import enum
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import InvalidArgument, NetworkError
from pyrmq_core.network.addresses import format_address
from pyrmq_core.network.connect import accept_tls
from pyrmq_core.network.connection.calls import HEALTH_SECONDS, DeadlineSweeper
from pyrmq_core.network.connection.connection import MAX_REQUESTS, Connection
from pyrmq_core.network.connection.peer import Handler, Peer
from pyrmq_core.network.connection.read_slice import ReadTurns
from pyrmq_core.network.connection.shared_bytes import Memory
from pyrmq_core.network.connection.stall_detector import FRAME_TIMEOUT_SECONDS, ConnectionTimeouts
from pyrmq_core.network.connection.wire import SocketWire, Wire
from pyrmq_core.network.listener import accept, connections_with_files, open_listener
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.framing.frame import SERVER_HEADER_BYTES

log = line_logger(__name__)

IDLE_TIMEOUT_SECONDS: Final = 120.0  # as NettyServerConfig.serverChannelMaxIdleTimeSeconds
MAX_CONNECTIONS: Final = 65_535
MAX_RECEIVED_BYTES: Final = 1024 * 1024 * 1024
MAX_WAITING_BYTES: Final = 512 * 1024 * 1024
# The connections accepted before other tasks run. If those tasks take long, more are accepted next: one for each ms, up
# to 100. With only four each time, a new connection behind a flood of 500 waited for more than five seconds.
ACCEPTED_AT_ONCE: Final = 4
ACCEPTED_A_SECOND: Final = 1_000
MOST_ACCEPTED_AT_ONCE: Final = 100
# The first byte of a TLS ClientHello. The first byte of a frame is 0, since its length is below 16 MiB.
TLS_FIRST_BYTE: Final = b"\x16"


class TlsMode(enum.Enum):
    """The connections that a server with a certificate accepts: without TLS (DISABLED), with TLS (ENFORCING), or both
    (PERMISSIVE).

    Source: remoting/common/TlsMode.java.
    """

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True)
class ServerBounds:
    """The limits on all connections of a server together, and on one header.

    `connections` is lowered if the process's limit of file descriptors requires it. When unfinished frames and
    unanswered requests take more than `received_bytes`, or unread answers more than `waiting_bytes`, the connections
    with the most bytes are closed.
    """

    connections: int = MAX_CONNECTIONS
    received_bytes: int = MAX_RECEIVED_BYTES
    waiting_bytes: int = MAX_WAITING_BYTES
    header_bytes: int = SERVER_HEADER_BYTES


class Listening:
    """A port on which a server listens, with its open connections.

    `host`, `port` and `address` are the bound ones. If port 0 was requested, `port` is the one that the system chose.
    """

    def __init__(
        self, host: str, port: int, scope: trio.CancelScope, on_close: Callable[[Peer], None] | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.address = format_address(host, port)
        self._open: dict[Connection, None] = {}
        self._scope = scope
        self._on_close = on_close
        self._closed = trio.Event()

    def __repr__(self) -> str:
        return f"<Listening on {self.address}, {len(self._open)} connections>"

    @property
    def connections(self) -> tuple[Connection, ...]:
        return tuple(self._open)

    def _forget(self, connection: Connection) -> None:
        del self._open[connection]
        if self._on_close is not None:
            self._on_close(connection.peer)

    async def aclose(self) -> None:
        self._scope.cancel()
        await self._closed.wait()


async def serve(
    handler: Handler,
    host: str,
    port: int,
    *,
    on_close: Callable[[Peer], None] | None = None,
    tls: ssl.SSLContext | None = None,
    tls_mode: TlsMode = TlsMode.PERMISSIVE,
    idle_timeout: float = IDLE_TIMEOUT_SECONDS,
    frame_timeout: float = FRAME_TIMEOUT_SECONDS,
    max_requests_per_connection: int = MAX_REQUESTS,
    bounds: ServerBounds | None = None,
    fast_port_below: int | None = None,
    task_status: trio.TaskStatus[Listening] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answers requests on a port until cancelled or `Listening.aclose`. `nursery.start` returns the `Listening`.

    Times are in seconds. A connection that idles for `idle_timeout`, or does not complete a frame within
    `frame_timeout`, is closed. No more requests are read from a connection with `max_requests_per_connection`
    unanswered ones. `on_close` is called after each connection. With `fast_port_below` the server also listens at the
    port that many numbers below, if it is free (the fast port of Java's brokers). Raises `NetworkError` if it cannot
    listen. Raises `InvalidArgument` for a host that cannot be resolved, or if `tls_mode` enforces TLS without `tls`.
    """
    opening = _opening(tls, tls_mode, frame_timeout)
    bounds = bounds or ServerBounds()
    listeners = await _open_listeners(host, port, fast_port_below)
    limits = ConnectionTimeouts(idle_timeout, frame_timeout)
    sweeper = DeadlineSweeper(min(limits.look_seconds, HEALTH_SECONDS))
    make = partial(
        Connection,
        sweeper=sweeper,
        handler=handler,
        limits=limits,
        max_requests=max_requests_per_connection,
        max_header_bytes=bounds.header_bytes,
        memory=Memory[Connection](bounds.received_bytes, bounds.waiting_bytes),
        endings=trio.Lock(),
        turns=ReadTurns(),
        log_level=logging.WARNING,
    )
    listening: Listening | None = None
    try:
        async with trio.open_nursery() as nursery:
            bound = listeners[0].getsockname()
            listening = Listening(bound[0], bound[1], nursery.cancel_scope, on_close)
            nursery.start_soon(sweeper.run)
            task_status.started(listening)

            def connect(wire: SocketWire) -> None:
                connection = make(wire, opening=opening and partial(opening, wire), on_close=listening._forget)
                listening._open[connection] = None
                nursery.start_soon(connection.run)

            for listener in listeners:
                nursery.start_soon(_accept_all, listener, listening, connect, bounds.connections)
    finally:
        for listener in listeners:
            listener.close()
        if listening is not None:
            listening._closed.set()


async def _open_listeners(host: str, port: int, fast_port_below: int | None) -> list[socket.socket]:
    listeners = [await open_listener(host, port)]
    ip, bound_port = listeners[0].getsockname()[:2]
    fast = 0 if fast_port_below is None else bound_port - fast_port_below
    if fast > 0:
        try:
            listeners.append(await open_listener(ip, fast))
        except NetworkError as error:
            log.info("without the fast port of RocketMQ's tools and slaves: %s", error)
    return listeners


async def _accept_all(
    listener: socket.socket, listening: Listening, connect: Callable[[SocketWire], None], max_connections: int
) -> None:
    most = connections_with_files(max_connections)
    why = "serverMaxConnections" if most == max_connections else "the limit of open files leaves no room for more"
    no_room, refused = RareLine(), RareLine()
    left, turn = ACCEPTED_AT_ONCE, time.monotonic()
    while True:
        accepted = await accept(listener, no_room)
        left -= 1
        if len(listening._open) >= most:
            if refused.is_due():
                text = f"{listening.address} has {most} connections, its limit; more are refused ({why})"
                log.warning("%s%s", text, refused.left_out())
            accepted.close()
        else:
            try:
                connect(SocketWire(accepted))
            except Exception as error:  # the peer has closed already, or memory is short
                log.debug("a connection was accepted and could not be used", exc_info=error)
                accepted.close()
        if left <= 0:
            await trio.lowlevel.checkpoint()
            now = time.monotonic()
            due = min(round((now - turn) * ACCEPTED_A_SECOND), MOST_ACCEPTED_AT_ONCE)
            left, turn = max(due, ACCEPTED_AT_ONCE), now


def _opening(
    tls: ssl.SSLContext | None, mode: TlsMode, handshake_timeout: float
) -> Callable[[SocketWire], Awaitable[Wire]] | None:
    if tls is not None:
        return partial(_open, tls, mode, handshake_timeout, trio.Lock())
    if mode is TlsMode.ENFORCING:
        raise InvalidArgument("TLS is enforced and no SSLContext is given; give the server a certificate")
    return None


async def _open(
    tls: ssl.SSLContext, mode: TlsMode, handshake_timeout: float, turns: trio.Lock, wire: SocketWire
) -> Wire:
    """Returns the wire itself, or TLS over it if its first byte begins a TLS handshake.

    Raises `ConnectionAbortedError` if the mode enforces TLS and the peer sends anything else. The lock `turns`, which
    all connections share, lets other tasks run between two handshakes.
    """
    if mode is TlsMode.DISABLED:
        return wire
    await trio.lowlevel.wait_readable(wire.socket)
    first = wire.socket.recv(1, socket.MSG_PEEK)
    if first == TLS_FIRST_BYTE:
        async with turns:  # a handshake takes a millisecond: lets other tasks run between two
            await trio.lowlevel.checkpoint()
        return await accept_tls(wire, tls, handshake_timeout)
    if first and mode is TlsMode.ENFORCING:
        log.warning("closing the connection with %s, which spoke plain: this port takes TLS only", wire.address)
        raise ConnectionAbortedError("it spoke plain, and this port takes TLS only")
    return wire
