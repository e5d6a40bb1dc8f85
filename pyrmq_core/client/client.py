"""`Client`: connections, routes and heartbeats, shared by the producers and consumers that are given it.

One client is one set of connections and one background nursery; it lives as long as its `async with` block.
Sources: client/impl/factory/MQClientInstance.java (scheduled tasks), client/ClientConfig.java (defaults).
"""

from __future__ import annotations

import logging
import os
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

import trio

from pyrmq_core.client.nameservers import NameServers
from pyrmq_core.client.ownership import open_owned_nursery
from pyrmq_core.client.routes import Routes
from pyrmq_core.client.routing import parse_nameservers
from pyrmq_core.errors import InvalidArgument, InvalidState, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network import ConnectionPool, local_ip
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.codes import ResponseCode
from pyrmq_core.protocol.command import Command
from pyrmq_core.protocol.conversation import response_error
from pyrmq_core.protocol.requests.heartbeat import HeartBeat, UnregisterClient

log = logging.getLogger(__name__)

CALL_TIMEOUT_SECONDS: Final = 3.0
CLOSE_SECONDS: Final = 2.0
FIRST_HEARTBEAT_SECONDS: Final = 1.0


class Client:
    """Connections, routes and heartbeats.

    `nameserver` is `"host:port;host:port"` or a list; without it NAMESRV_ADDR is taken. Times are seconds. `tls` is
    the context for every connection. Requests are signed when `access_key` and `secret_key` are given.
    """

    def __init__(
        self,
        *,
        nameserver: str | Sequence[str] | None = None,
        poll_nameserver_interval: float = 30.0,
        heartbeat_broker_interval: float = 30.0,
        access_key: str | None = None,
        secret_key: str | None = None,
        security_token: str | None = None,
        tls: ssl.SSLContext | None = None,
        instance_name: str | None = None,
    ) -> None:
        if (access_key is None) != (secret_key is None):
            raise InvalidArgument("access_key and secret_key belong together; give both or neither")
        self._addresses = parse_nameservers(os.environ.get("NAMESRV_ADDR", "") if nameserver is None else nameserver)
        self._poll_seconds = poll_nameserver_interval
        self._heartbeat_seconds = heartbeat_broker_interval
        self._credentials = (access_key, secret_key, security_token) if access_key and secret_key else None
        self._tls = tls
        self.client_id = f"{local_ip()}@{instance_name or f'{os.getpid()}#{random.getrandbits(48)}'}"
        self._producer_groups: set[str] = set()
        self._stack: AsyncExitStack | None = None
        self._pool: ConnectionPool | None = None
        self._routes: Routes | None = None
        self._nameservers: NameServers | None = None

    def __repr__(self) -> str:
        return f"<Client {self.client_id} of {';'.join(self._addresses) or 'no NameServer'}>"

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise InvalidState(f"{self!r} was opened before; make a new one")
        self._stack = AsyncExitStack()
        nursery = await self._stack.enter_async_context(open_owned_nursery())
        self._stack.push_async_callback(self._leave)
        self._pool = ConnectionPool(nursery, tls=self._tls)
        self._nameservers = NameServers(self._pool, self._addresses, random_start=random.getrandbits(31))
        self._routes = Routes(self._nameservers, random_start=lambda: random.getrandbits(31))
        nursery.start_soon(self._poll_routes, self._routes)
        nursery.start_soon(self._send_heartbeats, self._routes)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stack is not None:
            await self._stack.__aexit__(kind, error, traceback)

    @property
    def routes(self) -> Routes:
        """`InvalidState` outside the `async with` block."""
        if self._routes is None:
            raise self._not_open()
        return self._routes

    @property
    def nameservers(self) -> NameServers:
        if self._nameservers is None:
            raise self._not_open()
        return self._nameservers

    async def call(self, address: str, command: Command, *, timeout: float = CALL_TIMEOUT_SECONDS) -> Command:
        """One request to one server; the answer, whatever its code. Raises `NetworkError`s and `ProtocolError`s."""
        return await self._open_pool().call(address, self._signed(command), timeout=timeout)

    async def send_oneway(self, address: str, command: Command, *, timeout: float = CALL_TIMEOUT_SECONDS) -> None:
        """One request of which no answer is expected; returns when it is written."""
        await self._open_pool().send_oneway(address, self._signed(command), timeout=timeout)

    async def ask_broker(
        self, queue: MessageQueue, command: Command, *, timeout: float = CALL_TIMEOUT_SECONDS
    ) -> Command:
        """One request to the master of the queue's broker; `ResponseError` for an answer other than SUCCESS."""
        address = await self.master_address(queue, timeout=timeout)
        answer = await self.call(address, command, timeout=timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, command.code, f"{queue.broker_name} ({address})", f"queue {queue}")
        return answer

    async def master_address(self, queue: MessageQueue, *, timeout: float) -> str:
        """Where the queue is written, asking for the route when its broker is not known yet."""
        try:
            broker = self.routes.broker(queue.broker_name)
        except RocketMQError:
            await self.routes.refresh(queue.topic, timeout=timeout)
            broker = self.routes.broker(queue.broker_name)
        if broker.master is None:
            await self.routes.refresh(queue.topic, timeout=timeout)
            broker = self.routes.broker(queue.broker_name)
        return broker.master or min(broker.broker_addrs.items())[1]

    def register_producer(self, group: str) -> None:
        """Heartbeats name the group from now on; `InvalidState` when the client has a producer of it already."""
        if group in self._producer_groups:
            raise InvalidState(
                f"The producer group[{group}] has been created before, specify another name please. "
                "One client holds one producer a group: share that producer, or open another client"
            )
        self._producer_groups.add(group)

    async def unregister_producer(self, group: str) -> None:
        """Brokers forget the group; one that cannot be reached will forget it by itself after 120 s."""
        self._producer_groups.discard(group)
        command = UnregisterClient(self.client_id, producer_group=group).to_command()
        await self._tell_masters(command)

    def close_connection(self, address: str) -> None:
        """Drop the connection to a server that does not answer; the next call opens a new one."""
        self._open_pool().close(address)

    async def _leave(self) -> None:
        """Says good-bye to the brokers, also when cancelled; a silent one is not waited for."""
        try:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                for group in sorted(self._producer_groups):
                    await self.unregister_producer(group)
        finally:
            self._pool = self._routes = self._nameservers = None

    async def _poll_routes(self, routes: Routes) -> None:
        while True:
            await trio.sleep(self._poll_seconds)
            await self._round("polling routes", routes.refresh_all)

    async def _send_heartbeats(self, routes: Routes) -> None:
        """Every 30 s, and at once when a broker is new (5.x does it when a connection becomes active)."""
        await trio.sleep(FIRST_HEARTBEAT_SECONDS)
        while True:
            routes.forget_offline_brokers()
            changed = routes.brokers_changed
            await self._round("sending heartbeats", self._heartbeat)
            with trio.move_on_after(self._heartbeat_seconds):
                await changed.wait()

    async def _heartbeat(self) -> None:
        if self._producer_groups:
            await self._tell_masters(HeartBeat(self.client_id, tuple(sorted(self._producer_groups))).to_command())

    async def _tell_masters(self, command: Command) -> None:
        async def tell(address: str) -> None:
            try:
                await self.call(address, command)
            except RocketMQError as error:
                log.debug("%s was not told: %s", address, error)

        async with trio.open_nursery() as nursery:
            for broker in self.routes.brokers:
                if broker.master is not None:
                    nursery.start_soon(tell, broker.master)

    async def _round(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """A failing round of scheduled work is logged and never ends the next."""
        try:
            await work()
        except* Exception as group:
            log.warning("%s failed and will be tried again: %s", what, group.exceptions[0])

    def _signed(self, command: Command) -> Command:
        if self._credentials is None:
            return command
        return replace(command, ext=sign(command.ext, command.body, *self._credentials))

    def _open_pool(self) -> ConnectionPool:
        if self._pool is None:
            raise self._not_open()
        return self._pool

    def _not_open(self) -> InvalidState:
        return InvalidState(f"{self!r} is not open: use it inside `async with`")
