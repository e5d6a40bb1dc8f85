"""`RemotingClient`, which sends a client's requests to servers, with hooks and signatures.

It has one connection for each address. Every answer contains the server's release. If that release does not know a
request, the request is not sent, since old releases would not answer at all. The client itself then answers it with
REQUEST_CODE_NOT_SUPPORTED, as later releases do (`protocol/framing/versions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import trio

from pyrmq_core.client.remoting.identity import Credentials
from pyrmq_core.client.remoting.rpc_hooks import RpcHooks
from pyrmq_core.errors import NetworkError, RocketMQError
from pyrmq_core.network import ON_LOOP, BulkCall, Call, Connection, ConnectionPool, Done, LoopAccess
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.framing.frame import Request, RequestForm, as_command
from pyrmq_core.protocol.framing.lent_answer import AnswerForm
from pyrmq_core.protocol.framing.versions import KNOWN_SINCE, NEW_AT_NAMESERVERS, too_old_for, version_name
from pyrmq_core.protocol.messages.names import AUTO_CREATE_TOPIC
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo

# Requests that are sent to read the server's release in the answer. Every release answers them and changes nothing.
ROUTE_QUESTION: Final = GetRouteInfo(AUTO_CREATE_TOPIC, accept_standard_json_only=True).to_command()
EMPTY_HEARTBEAT: Final = HeartBeat("", (), ()).to_command()


class RemotingClient:
    """The sender of one client's requests to NameServers and brokers."""

    def __init__(self, pool: ConnectionPool, rpc_hooks: RpcHooks, credentials: Credentials | None) -> None:
        self._pool = pool
        self._hooks = rpc_hooks
        self._credentials = credentials
        self._versions: dict[str, int] = {}
        self._is_hooked = bool(rpc_hooks)
        self._plain = credentials is None and not rpc_hooks
        # Hooks run on the loop, and with TLS a task of the loop writes. In both cases other threads may not write.
        self.writes_from_threads = not rpc_hooks and pool.tls is None

    async def call(self, address: str, command: Command, *, timeout: float) -> Command:
        """Sends a request and returns the answer, whatever its code. `timeout` is seconds.

        Raises `NetworkError`s and `ProtocolError`s. If the server's release does not know the request, nothing is sent,
        and the answer is REQUEST_CODE_NOT_SUPPORTED. The release is queried first, within the same timeout.
        """
        if command.code in KNOWN_SINCE:
            if address not in self._versions:
                question = ROUTE_QUESTION if command.code in NEW_AT_NAMESERVERS else EMPTY_HEARTBEAT
                deadline = trio.current_time() + timeout
                await self._call(address, question, timeout)
                timeout = deadline - trio.current_time()
            if too_old_for(command.code, self._versions[address]):
                return _unknown_there(command.code, self._versions[address])
        return await self._call(address, command, timeout)

    async def _call(self, address: str, command: Command, timeout: float) -> Command:
        if self._plain:
            answer = await self._pool.call(address, command, timeout=timeout)
        else:
            request = self._hooks.before(address, command)
            answer = await self._pool.call(address, self._signed(request), timeout=timeout)
            self._hooks.after(address, request, answer)
        self._versions[address] = answer.version
        return answer

    async def wait_ready(self, address: str, command: Command, *, timeout: float) -> None:
        """Waits until a request to the address could be written at once. Sends nothing. Raises the errors of `call`."""
        await self._pool.wait_ready(address, command, timeout=timeout)

    async def send_oneway(self, address: str, command: Command, *, timeout: float) -> None:
        await self._pool.send_oneway(address, self.prepared(address, command), timeout=timeout)

    def begin(self, address: str, command: Request, deadline: float, timeout: float) -> Call | None:
        """Sends a request without waiting, and returns its `Call`. The caller must await `Call.wait` at once.

        Returns None, and sends nothing, if the client has RPC hooks, or if no open connection to the address has room
        for the request. `deadline` is a time of trio's clock, and `timeout` appears in the error's text.
        """
        connection = self._pool.ready_connection(address)
        if connection is None or self._is_hooked:
            return None
        request = command if self._plain else self._signed(as_command(command))
        return connection.begin(request, deadline, timeout)

    def post(
        self, address: str, command: Request, deadline: float, timeout: float, done: Done, loop: LoopAccess = ON_LOOP
    ) -> Callable[[], None] | None:
        """Sends a request without waiting, and returns a function that abandons the call.

        `done` receives the answer or the error, once, on the loop. Returns None, and sends nothing, if no open
        connection to the address has room for the request, or if the caller's thread has to write it
        (`loop.writes_here`) and cannot do so at once. `deadline` is a time of trio's clock, and `timeout` appears in
        the error's text.
        """
        connection = self._pool.ready_connection(address)
        if connection is None:
            return None
        if self._is_hooked:
            command, done = self.hooked(address, as_command(command), done)
        elif not self._plain:
            command = self._signed(as_command(command))
        return connection.post_until(command, deadline, timeout, done, loop)

    async def line(self, address: str, *, timeout: float) -> PinnedConnection:
        return PinnedConnection(self, await self._pool.connection(address, timeout=timeout), plain=self._plain)

    def prepared(self, address: str, command: Command) -> Command:
        return self._signed(self._hooks.before(address, command))

    def close(self, address: str) -> None:
        self._pool.close(address)

    def forget(self, address: str) -> None:
        """Forgets the release of the server at an address, since the next connection may reach another server."""
        self._versions.pop(address, None)

    def hooked(self, address: str, command: Command, done: Done) -> tuple[Command, Done]:
        """Calls the hooks before a request. Returns the signed request, and a callback that takes the place of `done`.

        The callback calls the hooks with the answer, and then `done`. An error is passed to `done` alone.
        """
        request = self._hooks.before(address, command)

        def hooked(result: Command | NetworkError) -> None:
            if isinstance(result, Command):
                self._hooks.after(address, request, result)
            done(result)

        return self._signed(request), hooked

    def _signed(self, command: Command) -> Command:
        keys = self._credentials
        if keys is None:
            return command
        signed = sign(command.ext, command.body, keys.access_key, keys.secret_key, keys.security_token)
        return replace(command, ext=signed)


def _unknown_there(request_code: int, version: int) -> Command:
    first = version_name(KNOWN_SINCE[request_code])
    remark = f"not sent, since the server is of release {version_name(version)} and {first} is the first that knows it"
    return replace(refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark), version=version)


class PinnedConnection:
    """One connection to a server, for many requests whose answers are passed to callbacks instead of waiting tasks.

    Requests pass hooks and are signed as in `RemotingClient.call`. A lost connection is not opened again: when it
    `is_closed`, request another one from `RemotingClient.line`. `plain` means that the client has neither hooks nor
    keys for signatures.
    """

    def __init__(self, remoting: RemotingClient, connection: Connection, *, plain: bool) -> None:
        self._remoting = remoting
        self._connection = connection
        self._plain = plain

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    def lend_answers(self, form: AnswerForm) -> None:
        """Lets the answers to `post_all` share memory with the receive buffer, which saves copying their bodies.

        If the regular expression `form` matches an answer's header, the header is parsed only when a further field is
        used.
        """
        self._connection.lend_answers(form)

    def post(self, command: Command, *, timeout: float, done: Done) -> Callable[[], None]:
        """Sends a request. `done` receives the answer or the error. Returns a function that abandons the call."""
        request, hooked = self._remoting.hooked(self._connection.address, command, done)
        return self._connection.post(request, timeout=timeout, done=hooked)

    def post_all(self, form: RequestForm, requests: Sequence[BulkCall], *, timeout: float) -> None:
        """Sends all requests, which the template `form` encodes. Each request's callback is called once."""
        if self._plain:
            self._connection.post_all(form, requests, timeout=timeout)
            return
        for bulk_call in requests:
            try:
                self.post(form.command(bulk_call.numbers), timeout=timeout, done=bulk_call.end)
            except RocketMQError as error:
                bulk_call.end(error)
