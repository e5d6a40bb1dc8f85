"""`ClientSession`: the connections and background tasks of a `Client`, for producers, consumers and `Admin`.

Its background tasks run in one nursery and end with its `async with` block. Source:
client/impl/factory/MQClientInstance.java (scheduled tasks).
"""

from __future__ import annotations

import logging
import os
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import trio

from pyrmq_core.client.client_settings import ClientSettings
from pyrmq_core.client.remoting.heartbeats import Heartbeats
from pyrmq_core.client.remoting.identity import client_id, namespace_of, offsets_id
from pyrmq_core.client.remoting.remoting_client import PinnedConnection, RemotingClient
from pyrmq_core.client.routes.name_servers import NameServers
from pyrmq_core.client.routes.route_table import BatchTopics, Routes
from pyrmq_core.client.routing.name_server_choice import parse_nameservers
from pyrmq_core.client.routing.publish_info import reading_address
from pyrmq_core.client.service_state import Life, ServiceState, check_trio
from pyrmq_core.errors import BrokerNotFound, InvalidState, NetworkError, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network import ConnectionPool, Handler, Peer, local_ip, open_lasting_nursery
from pyrmq_core.network.connection.answers import refuse_unsupported
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.namespaces import instance_namespace, with_namespace

if TYPE_CHECKING:
    from pyrmq_core.client.routes.name_server_url import Discovery

log = logging.getLogger(__name__)

CALL_TIMEOUT_SECONDS: Final = 3.0
CLOSE_SECONDS: Final = 2.0
FIRST_HEARTBEAT_SECONDS: Final = 1.0
LEAST_SECONDS: Final = 1.0


class Callbacks(Protocol):
    """An object with handlers, by request code, of brokers' requests to a client, such as transaction checks."""

    def handlers(self) -> Mapping[int, Handler]: ...


C = TypeVar("C", bound=Callbacks)


class ClientSession:
    """A client's connections, routes and heartbeats. Outside its `async with` block every use raises `InvalidState`."""

    def __init__(self, settings: ClientSettings) -> None:
        nameserver = settings.nameserver_or_environment()
        unit_name = settings.unit_name or None
        self._settings = settings
        self._addresses = parse_nameservers(nameserver)
        self.namespace = instance_namespace(nameserver) if isinstance(nameserver, str) else None
        self.unit_mode = settings.unit_mode
        self._credentials = settings.credentials()
        self._rpc_hooks = settings.hooks()
        self.client_id = client_id(
            local_ip(),
            os.getpid(),
            settings.instance_name,
            self._addresses,
            settings.access_key,
            draw=random.getrandbits(48),
            unit_name=unit_name,
        )
        self.offsets_id = offsets_id(self.client_id, local_ip(), settings.instance_name, unit_name)
        self.problems = Problems(log)
        url = settings.nameserver_url
        self._discovery = None if url is None else _discovery(url, unit_name, self.problems)
        self._life = Life("client", self.client_id)
        self._handlers: dict[int, Handler] = {}
        self._callbacks: dict[type, Any] = {}
        self._stack = AsyncExitStack()
        self._nursery: trio.Nursery | None = None
        self._caller: RemotingClient | None = None
        self._routes: Routes | None = None
        self._nameservers: NameServers | None = None
        self._heartbeats: Heartbeats | None = None
        self._batch_topics: BatchTopics | None = None
        # By a proxy's address, the lock that members of a group hold while they pull through the proxy.
        self.pull_turns: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)

    def __repr__(self) -> str:
        source = self._discovery.url if self._discovery else ";".join(self._addresses)
        return f"<Client {self.client_id} of {source or 'no NameServer'}>"

    @property
    def state(self) -> ServiceState:
        return self._life.state

    async def __aenter__(self) -> Self:
        check_trio()
        self._life.starting()
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(open_lasting_nursery())
            pool = ConnectionPool(
                nursery, handler=self._answer, tls=self._settings.tls, on_open=self._opened, on_close=self._closed
            )
            caller = RemotingClient(pool, self._rpc_hooks, self._credentials)
            nameservers = NameServers(caller, self._addresses, random_start=random.getrandbits(31))
            routes = Routes(nameservers, self.problems, random_start=lambda: random.getrandbits(31))
            heartbeats = Heartbeats(self.client_id, caller, lambda: routes.brokers, self.problems)
            self._batch_topics = BatchTopics(caller, routes)
            self._nursery, self._caller, self._nameservers = nursery, caller, nameservers
            self._routes, self._heartbeats = routes, heartbeats
            if self._discovery is not None:
                await self._discovery.start(nursery, nameservers)
            nursery.start_soon(self._poll_routes, routes)
            nursery.start_soon(self._send_heartbeats, routes, heartbeats)
            nursery.start_soon(self._leave_lost_masters, routes, caller)
            stack.push_async_callback(self._leave, heartbeats)
            self._stack = stack.pop_all()
        self._life.started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    @property
    def caller(self) -> RemotingClient:
        if self._caller is None:
            raise self._life.not_running()
        return self._caller

    @property
    def routes(self) -> Routes:
        if self._routes is None:
            raise self._life.not_running()
        return self._routes

    @property
    def nameservers(self) -> NameServers:
        if self._nameservers is None:
            raise self._life.not_running()
        return self._nameservers

    @property
    def heartbeats(self) -> Heartbeats:
        if self._heartbeats is None:
            raise self._life.not_running()
        return self._heartbeats

    @property
    def batch_topics(self) -> BatchTopics:
        if self._batch_topics is None:
            raise self._life.not_running()
        return self._batch_topics

    async def call(self, address: str, command: Command, *, timeout: float = CALL_TIMEOUT_SECONDS) -> Command:
        """Sends a request to a server and returns the answer, whatever its code.

        Raises `NetworkError` or `ProtocolError` if no valid answer arrives.
        """
        return await self.caller.call(address, command, timeout=timeout)

    async def open_line(self, address: str) -> PinnedConnection:
        return await self.caller.line(address, timeout=CALL_TIMEOUT_SECONDS)

    async def send_oneway(self, address: str, command: Command, *, timeout: float = CALL_TIMEOUT_SECONDS) -> None:
        """Sends one request that expects no answer. Returns when it is written."""
        await self.caller.send_oneway(address, command, timeout=timeout)

    async def send_oneway_over(self, peer: Peer, command: Command, *, timeout: float = CALL_TIMEOUT_SECONDS) -> None:
        await peer.connection.send_oneway(self.caller.prepared(peer.address, command), timeout=timeout)

    async def ask_broker(
        self,
        queue: MessageQueue,
        command: Command,
        *,
        timeout: float = CALL_TIMEOUT_SECONDS,
        namespace: str | None = None,
    ) -> Command:
        """Sends one request to the master of the queue's broker. Raises `ResponseError` for any answer but SUCCESS.

        `queue.topic` does not include the `namespace`. After a network error the request is sent once more if the
        broker now has another address, such as a slave's after the master died.
        """
        address = await self.master_address(queue, timeout=timeout, namespace=namespace)
        try:
            answer = await self.call(address, command, timeout=timeout)
        except NetworkError:
            if not await self.has_moved(queue, address, timeout=timeout, namespace=namespace):
                raise
            address = await self.master_address(queue, timeout=timeout, namespace=namespace)
            answer = await self.call(address, command, timeout=timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, command.code, f"{queue.broker_name} ({address})", f"queue {queue}")
        return answer

    async def has_moved(
        self, queue: MessageQueue, address: str, *, timeout: float, namespace: str | None = None
    ) -> bool:
        """Fetches the topic's route, and returns True if the queue must now be read at another address than `address`.

        Returns False if the route cannot be fetched.
        """
        try:
            await self.routes.refresh(with_namespace(queue.topic, namespace), timeout=timeout)
            current = reading_address(self.routes.broker(queue.broker_name))
        except RocketMQError:
            return False
        return current is not None and current != address

    async def master_address(self, queue: MessageQueue, *, timeout: float, namespace: str | None = None) -> str:
        """Returns the address of the master of the queue's broker. Fetches the topic's route if it is not known.

        Without a master it returns the address of the slave with the lowest id. Raises `BrokerNotFound` if there is no
        slave.
        """
        try:
            broker = self.routes.broker(queue.broker_name)
        except RocketMQError:
            await self.routes.refresh(with_namespace(queue.topic, namespace), timeout=timeout)
            broker = self.routes.broker(queue.broker_name)
        if broker.master is None:
            await self.routes.refresh(with_namespace(queue.topic, namespace), timeout=timeout)
            broker = self.routes.broker(queue.broker_name)
        address = reading_address(broker)
        if address is None:
            raise BrokerNotFound(
                f"broker {queue.broker_name} has no address in the route of {queue.topic}",
                broker_name=queue.broker_name,
            )
        return address

    def namespace_or_own(self, namespace: str | None) -> str | None:
        """Returns `namespace`, or if it is None the one in the NameServer's address. An empty text becomes None."""
        return self.namespace if namespace is None else namespace_of(namespace)

    def register_producer(self, group: str, *, transactional: bool = False) -> None:
        if group in self.heartbeats.producer_groups:
            raise InvalidState(
                f"The producer group[{group}] has been created before, specify another name please. "
                "One client holds one producer a group: share that producer, or open another client"
            )
        self.heartbeats.add_producer(group, transactional=transactional)
        assert self._nursery is not None
        self._nursery.start_soon(self._round, "sending heartbeats", self.heartbeats.send_round)

    async def unregister_producer(self, group: str) -> None:
        """Reports to the brokers that this client has left the producer group.

        A broker that cannot be reached removes the client itself when the connection ends.
        """
        await self.heartbeats.remove(producer=group)

    def callbacks(self, kind: type[C]) -> C:
        """Returns the client's one object of class `kind`, which handles some kinds of requests from brokers.

        The first call creates the object and registers its handlers. A client that never calls this does not load the
        modules of these requests.
        """
        if kind not in self._callbacks:
            created = self._callbacks[kind] = kind()
            self._handlers.update(created.handlers())
        existing: C = self._callbacks[kind]
        return existing

    def serve(self, code: RequestCode, handler: Handler) -> None:
        self._handlers[code] = handler

    async def _leave(self, heartbeats: Heartbeats) -> None:
        try:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                async with trio.open_nursery() as nursery:
                    for group in sorted(heartbeats.producer_groups):
                        nursery.start_soon(partial(heartbeats.remove, producer=group))
                    for group in sorted(heartbeats.consumer_groups):
                        nursery.start_soon(partial(heartbeats.remove, consumer=group))
        finally:
            self._life.ended()
            self._caller = self._routes = self._nameservers = self._heartbeats = self._batch_topics = None

    def _answer(self, request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        return self._handlers.get(request.code, refuse_unsupported)(request, peer)

    def _opened(self, address: str) -> None:
        if self._heartbeats is not None and self._nursery is not None:
            self._nursery.start_soon(self._heartbeats.connected, address)

    def _closed(self, address: str) -> None:
        if self._caller is not None:
            self._caller.forget(address)
        if self._heartbeats is not None and self._heartbeats.disconnected(address) and self._nursery is not None:
            self._nursery.start_soon(self._heartbeats.return_to, address)

    async def _poll_routes(self, routes: Routes) -> None:
        while True:
            await trio.sleep(self._settings.poll_nameserver_interval)
            await self._round("polling routes", routes.refresh_all)

    async def _leave_lost_masters(self, routes: Routes, caller: RemotingClient) -> None:
        """Closes the connections to a former master that is in no route any more, once its broker has a new master.

        Sends that wait for the former master's answer then fail at once, and can be retried at the new master.
        """
        masters: dict[str, str] = {}
        while True:
            changed = routes.brokers_changed
            named = {address for broker in routes.brokers for address in broker.broker_addrs.values()}
            for broker in routes.brokers:
                if (master := broker.master) is None:  # no new master is elected, and the old one may come back
                    continue
                before = masters.get(broker.broker_name, master)
                if before not in named:
                    caller.close(before)
                masters[broker.broker_name] = master
            await changed.wait()

    async def _send_heartbeats(self, routes: Routes, heartbeats: Heartbeats) -> None:
        """Sends heartbeats every `heartbeat_broker_interval` seconds, and soon after a change of the known brokers."""

        async def clean_and_send() -> None:
            routes.forget_offline_brokers()
            await heartbeats.send_round()

        await trio.sleep(FIRST_HEARTBEAT_SECONDS)
        while True:
            changed, began = routes.brokers_changed, trio.current_time()
            await self._round("sending heartbeats", clean_and_send)
            with trio.move_on_after(self._settings.heartbeat_broker_interval):
                await changed.wait()
                await trio.sleep_until(began + LEAST_SECONDS)

    async def _round(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except* Exception as group:
            error = group.exceptions[0]
            log.warning("%s failed, and will be tried again: %s: %s", what, type(error).__name__, error, exc_info=error)


def _discovery(url: str, unit_name: str | None, problems: Problems) -> Discovery:
    from pyrmq_core.client.routes.name_server_url import Discovery

    return Discovery(url, problems, unit_name)
