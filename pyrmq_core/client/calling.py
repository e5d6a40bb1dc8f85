"""Requests on their way to servers: through the RPC hooks, signed last, over one connection an address."""

from __future__ import annotations

from dataclasses import replace

from pyrmq_core.client.hooks import RpcHooks
from pyrmq_core.client.identity import Credentials
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.command import Command


class Caller:
    """Asks NameServers and brokers for one client."""

    def __init__(self, pool: ConnectionPool, rpc_hooks: RpcHooks, credentials: Credentials | None) -> None:
        self._pool = pool
        self._hooks = rpc_hooks
        self._credentials = credentials
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

    def prepared(self, address: str, command: Command) -> Command:
        """The request as it leaves: changed by the hooks, then signed."""
        return self._signed(self._hooks.before(address, command))

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
