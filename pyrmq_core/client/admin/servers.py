"""The NameServers and brokers that an `Admin` queries.

`gather` queries several brokers, and returns their answers together with the errors of brokers that did not answer.
`change_each` makes a change at several servers. It continues after a failure, and the error names the changed and the
unchanged servers.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.query_many import query_many
from pyrmq_core.client.routing.publish_info import reading_address
from pyrmq_core.client.service_state import Life
from pyrmq_core.client.texts import Text
from pyrmq_core.errors import BrokerNotFound, InvalidArgument, NoRoute, RocketMQError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.namespaces import with_namespace, without_namespace
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo, GetClusterInfo
from pyrmq_core.protocol.requests.nameserver.kv_config import GetKvConfig, PutKvConfig
from pyrmq_core.protocol.routes.route import BrokerData, QueueData

T = TypeVar("T")

KEEP_SECONDS: Final = 1.0
LOOK_AGAIN_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Server:
    """The name and address of a broker or NameServer. Its `str` has both, for errors."""

    name: str
    address: str

    def __str__(self) -> str:
        return self.address if self.name == self.address else f"{self.name} ({self.address})"


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """The answers of several brokers, and the errors of brokers that did not answer, by name."""

    answers: dict[str, T]
    failures: dict[str, RocketMQError]


class AdminServers:
    """The NameServers and brokers of one `Admin`. Each query may take `timeout` seconds."""

    def __init__(self, session: ClientSession, life: Life, *, timeout: float, namespace: str | None) -> None:
        self.timeout = timeout
        self.namespace = namespace
        self._session = session
        self._life = life

    @property
    def session(self) -> ClientSession:
        self._life.check_running()
        return self._session

    def on_wire(self, name: str) -> str:
        return with_namespace(name, self.namespace)

    def own(self, name: str) -> str:
        return without_namespace(name, self.namespace)

    async def cluster_info(self) -> ClusterInfo:
        command = GetClusterInfo().to_command()
        return await self.ask_nameserver(
            command, ClusterInfo.from_command, lacks=lambda info: not info.broker_addr_table
        )

    async def registered(self, cluster: str | None = None) -> list[BrokerData]:
        """Returns the brokers of the cluster, or of all, by name. Raises `InvalidArgument` for an unknown cluster."""
        return _brokers(await self.cluster_info(), cluster)

    async def masters(self, cluster: str | None) -> dict[str, Server]:
        """Returns every master of the cluster, or of all clusters, by broker name. Raises an error if there is none."""
        brokers = await self.registered(cluster)
        masters = {
            broker.broker_name: Server(broker.broker_name, broker.master)
            for broker in brokers
            if broker.master is not None
        }
        if not masters:
            raise BrokerNotFound(
                "the NameServer knows no master broker; start one, or look why none registered", broker_name=""
            )
        return masters

    async def brokers(self, cluster: str | None = None) -> dict[str, Server]:
        """Returns for each broker name the server to read from: the master, else the slave with the lowest id."""
        registered = await self.registered(cluster)
        reading = {broker.broker_name: reading_address(broker) for broker in registered}
        there = {name: Server(name, address) for name, address in reading.items() if address is not None}
        if not there:
            raise BrokerNotFound(
                "the NameServer knows no broker; start one, or look why none registered", broker_name=""
            )
        return there

    async def readers(self, topic: str) -> list[Server]:
        """Returns for each broker in the topic's route the server to read from. Raises `NoRoute` if there is none."""
        routes = self.session.routes
        route = await routes.query(self.on_wire(topic), timeout=self.timeout)
        if route is None:
            raise routes.no_route(topic)
        addresses = [(broker.broker_name, reading_address(broker)) for broker in route.broker_datas]
        return [Server(name, address) for name, address in addresses if address is not None]

    async def wait_announced(
        self, topic: str, change: str, expected: Mapping[str, T], read: Callable[[QueueData], T]
    ) -> None:
        """Waits until a NameServer lists the `expected` value of each broker in the topic's route.

        `change` says in the error what was done. Raises `NoRoute` after `timeout`.
        """
        session, deadline = self.session, trio.current_time() + self.timeout
        while True:
            route = await session.routes.refresh(self.on_wire(topic), timeout=self.timeout)
            announced = {} if route is None else {data.broker_name: read(data) for data in route.queue_datas}
            missing = sorted(name for name, value in expected.items() if announced.get(name) != value)
            if not missing:
                return
            if trio.current_time() >= deadline:
                raise NoRoute(
                    f"topic {topic} is {change} on {', '.join(sorted(expected))}, but NameServer "
                    f"{';'.join(session.nameservers.addresses)} has not heard so from {', '.join(missing)} after "
                    f"{self.timeout:.3g} s; look whether they are registered there",
                    topic=topic,
                )
            await trio.sleep(LOOK_AGAIN_SECONDS)

    async def ask(self, server: Server, command: Command, about: str = "") -> Command:
        answer = await self.session.call(server.address, command, timeout=self.timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, command.code, str(server), about)
        return answer

    async def ask_nameserver(
        self,
        command: Command,
        read: Callable[[Command], T],
        *accepted: ResponseCode,
        lacks: Callable[[T], bool] = operator.not_,
    ) -> T:
        """Sends a request to a NameServer, and returns `read(answer)`.

        `lacks(result)` is True for a result that the caller does not want, by default an empty one. Then the other
        NameServers are queried too. If all results are unwanted, the first is returned. An answer with a code other
        than SUCCESS or those in `accepted` raises an error.
        """

        def checked(answer: Command, address: str) -> T:
            if answer.code not in (ResponseCode.SUCCESS, *accepted):
                raise response_error(answer, command.code, f"NameServer {address}")
            return read(answer)

        return await self.session.nameservers.ask_for(command, checked, timeout=self.timeout, lacks=lacks)

    async def change_nameservers(self, command: Command, about: str = "") -> dict[str, Command]:
        """Sends a change to every NameServer, since NameServers share no data. Returns their answers by address.

        The first failure is raised after all were tried, with a note of the changed NameServers. `about` names the
        change in the error.
        """
        session, answers = self.session, dict[str, Command]()
        if not session.nameservers.addresses:
            await session.nameservers.ask(command, timeout=self.timeout)  # its error says how to set a NameServer

        async def change(server: Server) -> None:
            answer = await session.call(server.address, command, timeout=self.timeout)
            if answer.code != ResponseCode.SUCCESS:
                raise response_error(answer, command.code, f"NameServer {server.address}", about)
            answers[server.address] = answer

        await change_each([Server(address, address) for address in session.nameservers.addresses], change)
        return answers

    async def keep_kv(self, namespace: str, key: str, value: str, about: str) -> tuple[str, ...]:
        """Stores a KV value at each NameServer that does not have the key. Returns the addresses of these NameServers.

        All are queried concurrently, and each request takes a second at most. The first failure is raised after all
        were queried. `about` names the value in the error.
        """
        query, timeout = GetKvConfig(namespace, key).to_command(), min(self.timeout, KEEP_SECONDS)
        if not self.session.nameservers.addresses:
            await self.session.nameservers.ask(query, timeout=timeout)  # its error says how to set a NameServer

        async def is_kept(address: str) -> bool | RocketMQError:
            request = query
            try:
                answer = await self.session.call(address, request, timeout=timeout)
                if answer.code == ResponseCode.SUCCESS:
                    return True
                if answer.code == ResponseCode.QUERY_NOT_FOUND:
                    request = PutKvConfig(namespace, key, value).to_command()
                    answer = await self.session.call(address, request, timeout=timeout)
                if answer.code != ResponseCode.SUCCESS:
                    raise response_error(answer, request.code, f"NameServer {address}", about)
            except RocketMQError as error:
                return error
            return False

        results = await query_many(self.session.nameservers.addresses, is_kept)
        for result in results.values():
            if isinstance(result, RocketMQError):
                raise result
        return tuple(address for address, kept in results.items() if not kept)

    async def gather(self, servers: Iterable[Server], ask: Callable[[Server], Awaitable[T]]) -> Gathered[T]:
        """Returns the answers of the brokers, queried concurrently. Raises an error only if none of them answers."""

        async def answer_of(server: Server) -> T | RocketMQError:
            try:
                return await ask(server)
            except RocketMQError as error:
                return error

        results = await query_many(servers, answer_of)
        failures = {server.name: answer for server, answer in results.items() if isinstance(answer, RocketMQError)}
        answers = {server.name: answer for server, answer in results.items() if not isinstance(answer, RocketMQError)}
        if failures and not answers:
            raise next(iter(failures.values()))
        return Gathered(answers, failures)


class AdminFamily:
    """The base of `Admin`'s families of methods, such as `admin.topics` and `admin.groups`.

    The methods of a family are coroutines. `blocking/admin_families.py` makes the blocking form of each method.
    """

    def __init__(self, servers: AdminServers) -> None:
        self._servers = servers


async def change_each(servers: Iterable[Server], change: Callable[[Server], Awaitable[object]]) -> tuple[str, ...]:
    """Makes a change at each server, one after the other, and returns their names.

    A failure at one server does not stop the change at the others. The first failure is raised at the end, with a note
    of the changed servers.
    """
    failure: RocketMQError | None = None
    changed, unchanged = [], []
    for server in servers:
        try:
            await change(server)
        except RocketMQError as error:
            failure = failure or error
            unchanged.append(server.name)
        else:
            changed.append(server.name)
    if failure is not None:
        if len(changed) + len(unchanged) > 1:
            names = {"changed": ", ".join(changed) or Text("none"), "unchanged": ", ".join(unchanged)}
            failure.add_note(Text("changed: {changed}; not changed: {unchanged}", **names))
        raise failure
    return tuple(changed)


def _brokers(info: ClusterInfo, cluster: str | None) -> list[BrokerData]:
    if cluster is not None and cluster not in info.cluster_addr_table:
        clusters = ", ".join(sorted(info.cluster_addr_table)) or "none"
        text = Text(
            "no cluster is named {cluster}; the NameServer knows {clusters}", cluster=cluster, clusters=clusters
        )
        raise InvalidArgument(text)
    names = info.broker_addr_table if cluster is None else info.cluster_addr_table[cluster]
    return [info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table]
