"""`ConnectionPool`: one connection per address, opened by the first call and replaced after it has ended."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.errors import CallTimeout, ConnectFailed
from pyrmq_core.network.addresses import parse_address
from pyrmq_core.network.connect import open_wire
from pyrmq_core.network.connection.calls import DeadlineSweeper
from pyrmq_core.network.connection.connection import Connection
from pyrmq_core.network.connection.failures import describe
from pyrmq_core.network.connection.peer import Handler
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import ResponseCode, request_name
from pyrmq_core.protocol.framing.command import Command

log = line_logger(__name__)

# The most calls under way, and the most one-way requests (NettySystemConfig.CLIENT_ASYNC_SEMAPHORE_VALUE).
MAX_CALLS: Final = 65_535
GO_AWAY: Final = ResponseCode.GO_AWAY.value
CONNECT_TIMEOUT_SECONDS: Final = 3.0
RETIRED_SECONDS: Final = 5.0


class _Opening:
    def __init__(self, address: str) -> None:
        self.done = trio.Event()
        self.scope = trio.CancelScope()
        self.connection: Connection | None = None
        self.failure = f"no connection to {address}: the pool was closed meanwhile"


class ConnectionPool:
    """The connections of a client to servers, one for each address. Their tasks run in `nursery`.

    `handler` answers requests that servers send. `max_calls` limits the calls under way and, separately, the one-way
    requests under way. Further callers wait, within their own timeouts. `on_open` and `on_close` are called with the
    address of a connection that opened or ended. `aclose` ends all connections.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        handler: Handler | None = None,
        tls: ssl.SSLContext | None = None,
        connect_timeout: float = CONNECT_TIMEOUT_SECONDS,
        max_calls: int = MAX_CALLS,
        on_open: Callable[[str], None] | None = None,
        on_close: Callable[[str], None] | None = None,
    ) -> None:
        self._nursery = nursery
        self._handler = handler
        self.tls = tls
        self._connect_timeout = connect_timeout
        self._permits = trio.Semaphore(max_calls)
        self._oneway_permits = trio.Semaphore(max_calls)
        self._max_calls = max_calls
        self._on_open = on_open
        self._on_close = on_close
        self._connections: dict[str, Connection] = {}
        self._alive: dict[Connection, None] = {}
        self._openings: dict[str, _Opening] = {}
        self._sweeper = DeadlineSweeper()
        self._sweeper_scope: trio.CancelScope | None = None
        self._sweeper_done = trio.Event()
        self._is_closed = False

    @property
    def connections(self) -> tuple[Connection, ...]:
        return tuple(connection for connection in self._connections.values() if not connection.is_closed)

    async def call(self, address: str, command: Command, *, timeout: float) -> Command:
        """Sends a request to the server at `address` and returns the answer.

        `timeout` is in seconds, and includes connecting and waiting while too many calls are under way. Raises
        `ConnectFailed`, and the errors of `Connection.call`. If the server answers GO_AWAY, the request is sent once
        more over a new connection (NettyRemotingClient.invokeImpl, 5.x).
        """
        deadline = trio.current_time() + timeout
        try:
            self._permits.acquire_nowait()
        except trio.WouldBlock:
            await self._wait_for_permit(self._permits, address, command, deadline, timeout)
        try:
            connection = self.open_connection(address) or await self._connect(address, deadline, timeout)
            answer = await connection.call_until(command, deadline, timeout)
            if answer.code != GO_AWAY:
                return answer
            self._retire(address, connection)
            connection = await self._connect(address, deadline, timeout)
            return await connection.call_until(command, deadline, timeout)
        finally:
            self._permits.release()

    async def wait_ready(self, address: str, command: Command, *, timeout: float) -> None:
        """Opens the connection to `address` if necessary, and waits until its send queue is not full. Sends nothing.

        `command` is the request to send later, for the texts of errors. Raises the errors of `call`. `timeout` is in
        seconds.
        """
        if self.ready_connection(address) is None:
            deadline = trio.current_time() + timeout
            connection = await self._connect(address, deadline, timeout)
            await connection.wait_for_room(command, deadline, timeout)

    def open_connection(self, address: str) -> Connection | None:
        connection = self._connections.get(address)
        return None if connection is None or connection.is_closed else connection

    def ready_connection(self, address: str) -> Connection | None:
        connection = self._connections.get(address)
        return None if connection is None or connection.is_closed or connection.is_full else connection

    async def connection(self, address: str, *, timeout: float) -> Connection:
        return await self._connect(address, trio.current_time() + timeout, timeout)

    async def send_oneway(self, address: str, command: Command, *, timeout: float) -> None:
        deadline = trio.current_time() + timeout
        try:
            self._oneway_permits.acquire_nowait()
        except trio.WouldBlock:
            await self._wait_for_permit(self._oneway_permits, address, command, deadline, timeout)
        try:
            connection = await self._connect(address, deadline, timeout)
            await connection.send_oneway_until(command, deadline, timeout)
        finally:
            self._oneway_permits.release()

    def close(self, address: str) -> None:
        if (connection := self._connections.pop(address, None)) is not None:
            connection.close()

    async def aclose(self) -> None:
        """Ends all connections and waits until their tasks have ended. Calls under way fail."""
        self._is_closed = True
        for opening in list(self._openings.values()):
            opening.scope.cancel()
            await opening.done.wait()
        for connection in list(self._alive):
            connection.close("its pool was closed")
        for connection in list(self._alive):
            await connection.aclose()
        if self._sweeper_scope is not None:
            self._sweeper_scope.cancel()
            await self._sweeper_done.wait()

    async def _wait_for_permit(
        self, permits: trio.Semaphore, address: str, command: Command, deadline: float, timeout: float
    ) -> None:
        with trio.move_on_at(deadline):
            await permits.acquire()
            return
        text = f"{request_name(command.code)} waited {timeout:g} s while {self._max_calls} calls were under way"
        raise CallTimeout(f"{text} and did not leave; call less at once", address=address, request_left=False)

    async def _connect(self, address: str, deadline: float, timeout: float) -> Connection:
        if (ready := self.open_connection(address)) is not None:
            return ready
        parse_address(address)
        if self._is_closed:
            raise ConnectFailed(f"no connection to {address}: the pool is closed", address=address)
        opening = self._openings.get(address)
        if opening is None:
            opening = _Opening(address)
            try:
                self._nursery.start_soon(self._open, address, opening)
            except RuntimeError:  # the nursery has ended
                raise ConnectFailed(opening.failure, address=address) from None
            self._openings[address] = opening
        with trio.move_on_at(deadline):
            await opening.done.wait()
            if opening.connection is None:
                raise ConnectFailed(opening.failure, address=address)
            return opening.connection
        raise ConnectFailed(f"no connection to {address} within {timeout:g} s; is that server alive?", address=address)

    async def _open(self, address: str, opening: _Opening) -> None:
        try:
            with opening.scope:
                wire = await open_wire(address, tls=self.tls, timeout=self._connect_timeout)
                connection = Connection(
                    wire, sweeper=self._sweeper, address=address, handler=self._handler, on_close=self._forget
                )
                if self._sweeper_scope is None:
                    self._sweeper_scope = trio.CancelScope()
                    self._nursery.start_soon(self._sweep, self._sweeper_scope)
                self._alive[connection] = None
                await self._nursery.start(connection.run)
                opening.connection = self._connections[address] = connection
                self._tell_open(address)
        except ConnectFailed as error:
            opening.failure = str(error)
        except Exception as error:  # waiting callers raise the failure, other connections continue
            log.debug("where it failed", exc_info=error)
            opening.failure = f"no connection to {address}: {describe(error)}; correct the address or the TLS settings"
        finally:
            del self._openings[address]
            opening.done.set()

    def _tell_open(self, address: str) -> None:
        try:
            if self._on_open is not None:
                self._on_open(address)
        except Exception:
            log.exception("what was to be done when the connection with %s had opened failed", address)

    async def _sweep(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await self._sweeper.run()
        finally:
            self._sweeper_done.set()

    def _retire(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
            self._nursery.start_soon(self._close_later, connection)

    async def _close_later(self, connection: Connection) -> None:
        with trio.move_on_after(RETIRED_SECONDS):
            await connection.wait_closed()
        connection.close("its server asked to go away")

    def _forget(self, connection: Connection) -> None:
        del self._alive[connection]
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        if self._on_close is not None and connection.address not in self._connections:
            self._on_close(connection.address)
