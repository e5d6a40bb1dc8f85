"""Requests on their way to servers: through the RPC hooks, signed last, over one connection an address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyrmq_core.client.remoting.identity import Credentials
from pyrmq_core.client.remoting.rpc_hooks import RpcHooks
from pyrmq_core.errors import NetworkError, RocketMQError
from pyrmq_core.network import BulkCall, Call, Connection, ConnectionPool, Done
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import Request, RequestForm, as_command


class RemotingClient:
    """Asks NameServers and brokers for one client."""

    def __init__(self, pool: ConnectionPool, rpc_hooks: RpcHooks, credentials: Credentials | None) -> None:
        self._pool = pool
        self._hooks = rpc_hooks
        self._credentials = credentials
        self._is_hooked = bool(rpc_hooks)
        self._plain = credentials is None and not rpc_hooks

    async def call(self, address: str, command: Command, *, timeout: float) -> Command:
        """The answer, whatever its code. Raises `NetworkError`s and `ProtocolError`s; `timeout` in seconds."""
        if self._plain:
            return await self._pool.call(address, command, timeout=timeout)
        request = self._hooks.before(address, command)
        answer = await self._pool.call(address, self._signed(request), timeout=timeout)
        self._hooks.after(address, request, answer)
        return answer

    async def send_oneway(self, address: str, command: Command, *, timeout: float) -> None:
        """Returns when the request is written."""
        await self._pool.send_oneway(address, self.prepared(address, command), timeout=timeout)

    def begin(self, address: str, command: Request, deadline: float, timeout: float) -> Call | None:
        """The first half of `call`: the request is on its way, its `Call` is to be waited for at once by the task.

        None, and nothing is sent, when a connection or room has to be waited for, or there are hooks to be told.
        """
        connection = self._pool.ready_connection(address)
        if connection is None or self._is_hooked:
            return None
        request = command if self._plain else self._signed(as_command(command))
        return connection.begin(request, deadline, timeout)

    def post(
        self, address: str, command: Request, deadline: float, timeout: float, done: Done
    ) -> Callable[[], None] | None:
        """`call` for one who does not wait: `done` is told the answer, or the error, once, on the loop.

        None when no connection is open, or much waits to be written: nothing is sent then. What it returns ends the
        interest in the answer.
        """
        connection = self._pool.ready_connection(address)
        if connection is None:
            return None
        if self._plain:
            return connection.begin(command, deadline, timeout, done).forget
        return PinnedConnection(self, connection, plain=False).post(as_command(command), timeout=timeout, done=done)

    def post_aside(
        self, address: str, command: Request, deadline: float, timeout: float, done: Done
    ) -> Callable[[], None] | None:
        """`post` by another thread while the loop waits for I/O, without hooks; None, too, while other calls are under
        way there."""
        connection = self._pool.open_connection(address)
        if connection is None:
            return None
        request = command if self._plain else self._signed(as_command(command))
        return connection.post_aside(request, deadline=deadline, timeout=timeout, done=done)

    async def line(self, address: str, *, timeout: float) -> PinnedConnection:
        """A connection to post requests to; raises `ConnectFailed`."""
        return PinnedConnection(self, await self._pool.connection(address, timeout=timeout), plain=self._plain)

    def prepared(self, address: str, command: Command) -> Command:
        """The request as it leaves: changed by the hooks, then signed."""
        return self._signed(self._hooks.before(address, command))

    def answered(self, address: str, request: Command, answer: Command) -> None:
        """Tells the hooks."""
        self._hooks.after(address, request, answer)

    def close(self, address: str) -> None:
        """Drops the connection; the next call opens a new one."""
        self._pool.close(address)

    def _signed(self, command: Command) -> Command:
        """Signatures cover all header fields: nothing may be added after them."""
        keys = self._credentials
        if keys is None:
            return command
        signed = sign(command.ext, command.body, keys.access_key, keys.secret_key, keys.security_token)
        return replace(command, ext=signed)


class PinnedConnection:
    """One connection to a server, for requests that nobody waits for one by one: they are posted, answers are told.

    Hooks and signatures are those of `RemotingClient.call`. A line is not renewed: when it `is_closed`, open another.
    """

    def __init__(self, caller: RemotingClient, connection: Connection, *, plain: bool) -> None:
        self._caller = caller
        self._connection = connection
        self._plain = plain

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    def post(self, command: Command, *, timeout: float, done: Done) -> Callable[[], None]:
        """`done` is told the answer, whatever its code, or the error; as `Connection.post`."""
        address = self._connection.address
        request = self._caller.prepared(address, command)

        def told(result: Command | NetworkError) -> None:
            if isinstance(result, Command):
                self._caller.answered(address, request, result)
            done(result)

        return self._connection.post(request, timeout=timeout, done=told)

    def post_all(self, form: RequestForm, requests: Sequence[BulkCall], *, timeout: float) -> None:
        """Requests of one form; each is told once what comes of it, also where a hook made it unfit to send."""
        if self._plain:
            self._connection.post_all(form, requests, timeout=timeout)
            return
        for asked in requests:
            try:
                self.post(form.command(asked.numbers()), timeout=timeout, done=asked.end)
            except RocketMQError as error:
                asked.end(error)
