"""`serve_bytes`: a server for other protocols than RocketMQ's remoting, with a task for each connection.

When the port is full, a new connection replaces one whose handler has not set `is_known`: the oldest of the host with
most such connections. So a host that opens many harms only itself.
"""

from __future__ import annotations

import math
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core.network.addresses import format_address
from pyrmq_core.network.listener import accept, open_listener
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLine

log = line_logger(__name__)

MAX_BYTE_CONNECTIONS: Final = 64


@dataclass(eq=False, slots=True)
class ByteConnection:
    """An accepted connection. Its handler sets `is_known` when it has recognized the peer as a valid one."""

    stream: trio.SocketStream
    host: str
    port: int
    is_known: bool = False
    accepted_at: float = field(default_factory=trio.current_time)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)

    async def send_some(self, data: memoryview) -> int:
        """Sends at least one byte, and returns the number of sent bytes. If it is cancelled, it has sent nothing.

        Raises `trio.BrokenResourceError` or `trio.ClosedResourceError` if the connection ended.
        """
        try:
            return await self.stream.socket.send(data)
        except OSError as error:
            raise trio.BrokenResourceError from error


# A handler of a connection. The connection is closed when it returns.
BytesHandler = Callable[[ByteConnection], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class BytePort:
    host: str
    port: int

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)


async def serve_bytes(
    handler: BytesHandler,
    host: str,
    port: int,
    *,
    max_connections: int = MAX_BYTE_CONNECTIONS,
    patience: float = math.inf,
    task_status: trio.TaskStatus[BytePort] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listens at `host` and `port` until cancelled, and runs `handler` for each connection in its own task.

    At most `max_connections` are open. A further one replaces one whose handler has not set `is_known` in `patience`
    seconds. `nursery.start` returns the bound address, a `BytePort`. A handler's exception ends only its connection.
    Raises `NetworkError` if it cannot listen, and `InvalidArgument` for a host that cannot be resolved.
    """
    listener = await open_listener(host, port)
    await serve_listener(handler, listener, max_connections=max_connections, patience=patience, task_status=task_status)


async def serve_listener(
    handler: BytesHandler,
    listener: socket.socket,
    *,
    max_connections: int,
    patience: float,
    task_status: trio.TaskStatus[BytePort] = trio.TASK_STATUS_IGNORED,
) -> None:
    connections, no_room = _Connections(max_connections, patience), RareLine()

    async def run(connection: ByteConnection) -> None:
        try:
            with connection.scope:
                await handler(connection)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.info("the connection with %s ended: %s", connection.address, error.__cause__ or error)
        except Exception:
            log.exception("the connection with %s is closed by a defect", connection.address)
        finally:
            connections.remove(connection)
            await trio.aclose_forcefully(connection.stream)

    try:
        async with trio.open_nursery() as nursery:
            bound = BytePort(*listener.getsockname()[:2])
            task_status.started(bound)
            while True:
                accepted = await accept(listener, no_room)
                connection = _connection(accepted)
                if connection is not None and connections.add(connection, bound):
                    nursery.start_soon(run, connection)
                else:
                    accepted.close()
                await trio.lowlevel.checkpoint()  # lets other tasks run after each of many accepted at once
    finally:
        listener.close()


def _connection(accepted: socket.socket) -> ByteConnection | None:
    try:
        host, port = accepted.getpeername()[:2]
        return ByteConnection(trio.SocketStream(trio.socket.from_stdlib_socket(accepted)), host, port)
    except OSError as error:
        log.debug("a connection was accepted and could not be used", exc_info=error)
        return None


class _Connections:
    def __init__(self, most: int, patience: float) -> None:
        self._open: dict[ByteConnection, None] = {}
        self._most = most
        self._patience = patience
        self._full = RareLine()

    def add(self, connection: ByteConnection, port: BytePort) -> bool:
        """Adds a connection. Returns False if the port is full and no connection may be replaced.

        The task of a replaced connection is cancelled.
        """
        if len(self._open) < self._most:
            self._open[connection] = None
            return True
        replaced = self._first_of_the_most()
        if replaced is not None and connection.accepted_at - replaced.accepted_at < self._patience:
            replaced = None
        if self._full.is_due():
            done = "more are refused" if replaced is None else f"the one with {replaced.address}, unknown, is closed"
            text = f"{port.address} has {self._most} connections, its limit; {done}"
            log.warning("%s%s", text, self._full.left_out())
        if replaced is None:
            return False
        self.remove(replaced)
        replaced.scope.cancel()
        self._open[connection] = None
        return True

    def _first_of_the_most(self) -> ByteConnection | None:
        unknown = [connection for connection in self._open if not connection.is_known]
        hosts = Counter(connection.host for connection in unknown).most_common(1)
        return next((connection for connection in unknown if connection.host == hosts[0][0]), None)

    def remove(self, connection: ByteConnection) -> None:
        self._open.pop(connection, None)
