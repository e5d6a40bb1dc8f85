"""`serve`: accepts connections on a port and answers what comes over them, plain and TLS on the same port."""

from __future__ import annotations

import enum
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network.addresses import format_address
from pyrmq_core.network.connecting import accept_tls
from pyrmq_core.network.connection import MAX_REQUESTS, Connection
from pyrmq_core.network.handling import Handler, Peer
from pyrmq_core.network.listening import accept, open_listener
from pyrmq_core.network.sweeping import HEALTH_SECONDS, Sweeper
from pyrmq_core.network.watch import FRAME_TIMEOUT_SECONDS, Limits
from pyrmq_core.network.wire import SocketWire, Wire

log = logging.getLogger(__name__)

IDLE_TIMEOUT_SECONDS: Final = 120.0  # NettyServerConfig.serverChannelMaxIdleTimeSeconds
MAX_CONNECTIONS: Final = 65_535
# The first byte of a TLS ClientHello; a frame begins with 0, its length being less than 16 MiB.
TLS_FIRST_BYTE: Final = b"\x16"


class TlsMode(enum.Enum):
    """Whether a server that has an SSLContext takes TLS, plain, or both (remoting/common/TlsMode.java)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class Listening:
    """A port that is served; `host`, `port` and `address` are the real ones (port 0 was replaced)."""

    def __init__(self, host: str, port: int, scope: trio.CancelScope) -> None:
        self.host = host
        self.port = port
        self.address = format_address(host, port)
        self._open: dict[Connection, None] = {}
        self._scope = scope
        self._closed = trio.Event()

    def __repr__(self) -> str:
        return f"<Listening on {self.address}, {len(self._open)} connections>"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those that are open now."""
        return tuple(self._open)

    async def aclose(self) -> None:
        """Closes the port and all its connections; returns when they are gone."""
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
    max_connections: int = MAX_CONNECTIONS,
    idle_timeout: float = IDLE_TIMEOUT_SECONDS,
    frame_timeout: float = FRAME_TIMEOUT_SECONDS,
    max_requests_per_connection: int = MAX_REQUESTS,
    task_status: trio.TaskStatus[Listening] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until cancelled or `Listening.aclose`; started in a nursery it gives back the `Listening`.

    Times are seconds. A connection that idles for `idle_timeout`, or does not complete a frame within `frame_timeout`,
    is closed; one beyond `max_connections` at once. With `max_requests_per_connection` unanswered, a connection is not
    read. `on_close` is called once for each connection that ended. Raises `NetworkError` when the port is taken, and
    `InvalidArgument` for what cannot be listened on.
    """
    if tls is None and tls_mode is TlsMode.ENFORCING:
        raise InvalidArgument("TLS is enforced and no SSLContext is given; give the server a certificate")
    listener = await open_listener(host, port)
    limits = Limits(idle_timeout, frame_timeout)
    sweeper = Sweeper(min(limits.look_seconds, HEALTH_SECONDS))
    listening: Listening | None = None
    try:
        async with trio.open_nursery() as nursery:
            bound = listener.getsockname()
            listening = Listening(bound[0], bound[1], nursery.cancel_scope)
            nursery.start_soon(sweeper.run)
            task_status.started(listening)

            def forget(connection: Connection) -> None:
                del listening._open[connection]
                if on_close is not None:
                    on_close(connection.peer)

            def connect(wire: SocketWire) -> None:
                connection = Connection(
                    wire,
                    sweeper=sweeper,
                    handler=handler,
                    limits=limits,
                    max_requests=max_requests_per_connection,
                    opening=None if tls is None else partial(_open, wire, tls, tls_mode, frame_timeout),
                    on_close=forget,
                    log_level=logging.WARNING,
                )
                listening._open[connection] = None
                nursery.start_soon(connection.run)

            await _accept_all(listener, listening, connect, max_connections)
    finally:
        listener.close()
        if listening is not None:
            listening._closed.set()


async def _accept_all(
    listener: socket.socket, listening: Listening, connect: Callable[[SocketWire], None], max_connections: int
) -> None:
    full = False
    while True:
        accepted = await accept(listener)
        if len(listening._open) >= max_connections:
            if not full:
                log.warning("%s has %d connections, its limit; more are refused", listening.address, max_connections)
            full = True
            accepted.close()
            continue
        full = False
        try:
            wire = SocketWire(accepted)
        except OSError:  # gone already: it has no other end to name
            accepted.close()
        else:
            connect(wire)


async def _open(wire: SocketWire, tls: ssl.SSLContext, mode: TlsMode, handshake_timeout: float) -> Wire:
    """The wire itself or TLS over it, by what its first byte is."""
    if mode is TlsMode.DISABLED:
        return wire
    await trio.lowlevel.wait_readable(wire.socket)
    first = wire.socket.recv(1, socket.MSG_PEEK)
    if first == TLS_FIRST_BYTE:
        return await accept_tls(wire, tls, handshake_timeout)
    if first and mode is TlsMode.ENFORCING:
        log.warning("closing the connection with %s, which spoke plain: this port takes TLS only", wire.address)
        raise ConnectionAbortedError("it spoke plain, and this port takes TLS only")
    return wire
