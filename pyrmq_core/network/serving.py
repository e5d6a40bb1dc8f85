"""`serve`: accepts connections on a port and answers what comes over them, plain and TLS on the same port."""

from __future__ import annotations

import enum
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.errors import NetworkError
from pyrmq_core.network.addresses import format_address
from pyrmq_core.network.connection import FRAME_TIMEOUT_SECONDS, MAX_REQUESTS, Connection
from pyrmq_core.network.handling import Handler, Peer
from pyrmq_core.network.sweeping import Sweeper
from pyrmq_core.network.wire import SocketWire

log = logging.getLogger(__name__)

# NettyServerConfig: serverSocketBacklog, serverChannelMaxIdleTimeSeconds.
BACKLOG: Final = 1024
IDLE_TIMEOUT_SECONDS: Final = 120.0
MAX_CONNECTIONS: Final = 65_535
ACCEPT_PAUSE_SECONDS: Final = 0.1


class TlsMode(enum.Enum):
    """Whether a server with an SSLContext takes TLS, plain, or both (remoting/common/TlsMode.java)."""

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
    """Serves until cancelled or `Listening.aclose`; start it in a nursery, which gives back the `Listening`."""
    listener = await _listen(host, port)
    name = listener.getsockname()
    sweeper = Sweeper()
    try:
        async with trio.open_nursery() as nursery:
            listening = Listening(name[0], name[1], nursery.cancel_scope)

            def forget(connection: Connection) -> None:
                listening._open.pop(connection, None)
                if on_close is not None:
                    on_close(connection.peer)

            nursery.start_soon(sweeper.run)
            task_status.started(listening)
            while True:
                accepted = await _accept(listener)
                connection = Connection(
                    SocketWire(accepted),
                    sweeper=sweeper,
                    handler=handler,
                    max_requests=max_requests_per_connection,
                    idle_timeout=idle_timeout,
                    frame_timeout=frame_timeout,
                    on_close=forget,
                )
                listening._open[connection] = None
                nursery.start_soon(connection.run)
    finally:
        listener.close()
        listening._closed.set()


async def _listen(host: str, port: int) -> socket.socket:
    found = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, name = min(found, key=lambda info: info[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(name)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise NetworkError(
            f"cannot listen on {format_address(host, port)}: {error.strerror}; choose another port or address",
            address=format_address(host, port),
            request_left=False,
        ) from error
    return listener


async def _accept(listener: socket.socket) -> socket.socket:
    while True:
        try:
            accepted, _ = listener.accept()
        except BlockingIOError:
            await trio.lowlevel.wait_readable(listener)
        else:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return accepted
