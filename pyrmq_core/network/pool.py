"""`ConnectionPool`: one connection an address, opened by the first call and replaced when dead."""

from __future__ import annotations

import ssl
from typing import Final

import trio

from pyrmq_core.errors import CallTimeout, ConnectFailed
from pyrmq_core.network.connecting import open_wire
from pyrmq_core.network.connection import Connection
from pyrmq_core.network.handling import Handler
from pyrmq_core.network.sweeping import Sweeper
from pyrmq_core.protocol.codes import request_name
from pyrmq_core.protocol.command import Command

# NettySystemConfig.CLIENT_ASYNC_SEMAPHORE_VALUE; one-way requests have as many of their own.
MAX_CALLS: Final = 65_535
CONNECT_TIMEOUT_SECONDS: Final = 3.0


class _Opening:
    """A connection being made, which all callers of its address wait for."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.connection: Connection | None = None
        self.failure = ""


class ConnectionPool:
    """Connections by address, alive as long as `nursery`.

    `handler` answers what servers ask. `max_calls` bounds the calls under way, and apart from them the one-way
    requests; further callers wait, at the cost of their own timeouts. `aclose` ends all connections.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        handler: Handler | None = None,
        tls: ssl.SSLContext | None = None,
        connect_timeout: float = CONNECT_TIMEOUT_SECONDS,
        max_calls: int = MAX_CALLS,
    ) -> None:
        self._nursery = nursery
        self._handler = handler
        self._tls = tls
        self._connect_timeout = connect_timeout
        self._permits = trio.Semaphore(max_calls)
        self._oneway_permits = trio.Semaphore(max_calls)
        self._max_calls = max_calls
        self._connections: dict[str, Connection] = {}
        self._openings: dict[str, _Opening] = {}
        self._sweeper = Sweeper()
        self._sweeper_scope: trio.CancelScope | None = None
        self._is_closed = False

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those that are open now."""
        return tuple(connection for connection in self._connections.values() if not connection.is_closed)

    async def call(self, address: str, command: Command, *, timeout: float) -> Command:
        """The answer of the server at `address`; connecting and waiting in line count in `timeout` (seconds).

        Raises `ConnectFailed`, and what `Connection.call` raises.
        """
        deadline = trio.current_time() + timeout
        await self._take_permit(self._permits, address, command, timeout)
        try:
            connection = await self._connection(address, timeout)
            return await connection.call(command, timeout=deadline - trio.current_time())
        finally:
            self._permits.release()

    async def send_oneway(self, address: str, command: Command, *, timeout: float) -> None:
        """Returns when the request is handed to the system whole. Raises as `call` does."""
        deadline = trio.current_time() + timeout
        await self._take_permit(self._oneway_permits, address, command, timeout)
        try:
            connection = await self._connection(address, timeout)
            await connection.send_oneway(command, timeout=deadline - trio.current_time())
        finally:
            self._oneway_permits.release()

    def close(self, address: str) -> None:
        """Drops the connection to an address; the next call opens a new one."""
        if (connection := self._connections.pop(address, None)) is not None:
            connection.close()

    async def aclose(self) -> None:
        """Ends all connections and the pool; calls under way fail. Nothing of it runs when this returns."""
        self._is_closed = True
        connections = list(self._connections.values())
        for connection in connections:
            connection.close("its pool was closed")
        for connection in connections:
            await connection.aclose()
        if self._sweeper_scope is not None:
            self._sweeper_scope.cancel()

    async def _take_permit(self, permits: trio.Semaphore, address: str, command: Command, timeout: float) -> None:
        try:
            permits.acquire_nowait()
        except trio.WouldBlock:
            with trio.move_on_after(timeout):
                await permits.acquire()
                return
            text = (
                f"{request_name(command.code)} to {address} found {self._max_calls} calls under way for {timeout:g} s"
            )
            raise CallTimeout(f"{text}; call less at once", address=address, request_left=False) from None

    async def _connection(self, address: str, timeout: float) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and not connection.is_closed:
            return connection
        if self._is_closed:
            raise ConnectFailed(f"no connection to {address}: the pool is closed", address=address)
        opening = self._openings.get(address)
        if opening is None:
            opening = self._openings[address] = _Opening()
            self._nursery.start_soon(self._open, address, opening)
        with trio.move_on_after(timeout):
            await opening.done.wait()
            if opening.connection is None:
                raise ConnectFailed(opening.failure, address=address)
            return opening.connection
        raise ConnectFailed(f"no connection to {address} within {timeout:g} s; is that server alive?", address=address)

    async def _open(self, address: str, opening: _Opening) -> None:
        opening.failure = f"no connection to {address}: the pool was closed meanwhile"
        try:
            wire = await open_wire(address, tls=self._tls, timeout=self._connect_timeout)
            if self._sweeper_scope is None:
                self._nursery.start_soon(self._sweep)
            connection = Connection(wire, sweeper=self._sweeper, handler=self._handler, on_close=self._forget)
            await self._nursery.start(connection.run)
            opening.connection = self._connections[address] = connection
            if self._is_closed:
                connection.close()
        except Exception as error:
            opening.failure = str(error)
        finally:
            del self._openings[address]
            opening.done.set()

    async def _sweep(self) -> None:
        with trio.CancelScope() as self._sweeper_scope:
            await self._sweeper.run()

    def _forget(self, connection: Connection) -> None:
        for address, known in list(self._connections.items()):
            if known is connection:
                del self._connections[address]
