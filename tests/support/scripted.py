"""Scripted servers: real sockets on loopback, answers that a test writes, every request recorded.

    async with scripted_server(handler) as server:
        server.on(RequestCode.SEND_MESSAGE_V2, refuse(14), silence)     # the first two; then `handler` again
        server.always(RequestCode.PULL_MESSAGE, cut)
        ...
        assert server.codes == [105, 310]

A step is a handler like any other: `(request, peer)` to an answer, or to None for silence.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import trio

from pyrmq_core.errors import NetworkError
from pyrmq_core.model import Permission
from pyrmq_core.network import CutConnection, Listening, Peer, ask, open_owned_nursery, serve
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo, RouteInfo
from pyrmq_core.protocol.requests.nameserver.kv_config import KvTable
from pyrmq_core.protocol.requests.nameserver.topic_lists import TopicList
from pyrmq_core.protocol.routes.route import BrokerData, QueueData, TopicRouteData

Step = Callable[[Command, Peer], Command | Awaitable[Command | None] | None]
SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
PULL = RequestCode.PULL_MESSAGE
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
WAIT_SECONDS = 60.0
PORTS = range(10_000, 20_000)  # no outgoing connection takes one while the server is stopped


@dataclass(frozen=True)
class Seen:
    """A request that arrived, the time on trio's clock, and its sender."""

    command: Command
    at: float
    peer: Peer


class ScriptedServer:
    """A server on a port of its own; requests without a step go to `handler`."""

    def __init__(self, nursery: trio.Nursery, handler: Step) -> None:
        self.seen: list[Seen] = []
        self.listening: Listening | None = None
        self._nursery = nursery
        self._handler = handler
        self._steps: dict[int, deque[Step]] = {}
        self._always: dict[int, Step] = {}
        self._port = 0
        self._more = trio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def codes(self) -> list[int]:
        return [seen.command.code for seen in self.seen]

    def of(self, *codes: int) -> list[Command]:
        """Returns the requests with one of these codes, oldest first."""
        return [seen.command for seen in self.seen if seen.command.code in codes]

    def times_of(self, *codes: int) -> list[float]:
        return [seen.at for seen in self.seen if seen.command.code in codes]

    def on(self, code: int, *steps: Step) -> None:
        """Registers one step for each of the next requests with this code."""
        self._steps.setdefault(code, deque()).extend(steps)

    def always(self, code: int, step: Step | None) -> None:
        """Registers a step for every request with this code after the steps of `on`; None removes it."""
        if step is None:
            self._always.pop(code, None)
        else:
            self._always[code] = step

    async def wait_seen(self, code: int, count: int = 1) -> None:
        """Returns when so many requests with this code have come."""
        with trio.fail_after(WAIT_SECONDS):
            while len(self.of(code)) < count:
                await self._more.wait()

    async def start(self) -> None:
        """Listens, again on the same port after `stop`."""
        while self.listening is None:
            port = self._port or random.choice(PORTS)
            try:
                self.listening = await self._nursery.start(partial(serve, self._handle, "127.0.0.1", port))
            except NetworkError:
                if self._port:
                    raise
        self._port = self.listening.port

    async def stop(self) -> None:
        """Closes the port and every connection, as the end of a process does."""
        if self.listening is not None:
            await self.listening.aclose()
            self.listening = None

    def _handle(self, request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        # The body may lie in a buffer that is reused.
        kept = replace(request, body=bytes(request.body))
        self.seen.append(Seen(kept, trio.current_time(), peer))
        more, self._more = self._more, trio.Event()
        more.set()
        steps = self._steps.get(request.code)
        step = steps.popleft() if steps else self._always.get(request.code, self._handler)
        return step(kept, peer)


@asynccontextmanager
async def scripted_server(handler: Step) -> AsyncIterator[ScriptedServer]:
    """Yields a started server; stops it with the block."""
    async with open_owned_nursery() as nursery:
        server = ScriptedServer(nursery, handler)
        await server.start()
        yield server


# --- Steps


def refuse(code: int, remark: str = "as the script says") -> Step:
    return lambda request, peer: refusal(code, remark)


def answer(command: Command) -> Step:
    return lambda request, peer: command


def silence(request: Command, peer: Peer) -> None:
    """Reads the request and never answers."""


def cut(request: Command, peer: Peer) -> None:
    """Ends the connection instead of answering."""
    raise CutConnection


def another_opaque(inner: Step) -> Step:
    """Returns a step that sends the right answer under an opaque that no request used."""

    async def step(request: Command, peer: Peer) -> None:
        reported = await ask(inner, request, peer)
        if reported is not None:
            peer.connection.answer(replace(request, opaque=request.opaque + 1000), reported)

    return step


def after(event: trio.Event, inner: Step) -> Step:
    """Returns a step that answers only when the event is set."""

    async def step(request: Command, peer: Peer) -> Command | None:
        await event.wait()
        return await ask(inner, request, peer)

    return step


def later(seconds: float, inner: Step) -> Step:
    """Returns a step that answers after so many seconds of trio's clock."""

    async def step(request: Command, peer: Peer) -> Command | None:
        await trio.sleep(seconds)
        return await ask(inner, request, peer)

    return step


# --- A NameServer


class Table:
    """A NameServer's answers: routes by topic, registered brokers, KV by namespace; tests change them as they like."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRouteData] = {}
        self.brokers: dict[str, BrokerData] | None = None
        self.kv: dict[str, dict[str, str]] = {}

    def __call__(self, request: Command, peer: Peer) -> Command:
        match request.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                topic = GetRouteInfo.from_command(request).topic
                if topic not in self.routes:
                    return refusal(17, f"No topic route info in name server for the topic: {topic}")
                return RouteInfo(self.routes[topic]).to_command()
            case RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
                return TopicList(tuple(sorted(self.routes))).to_command()
            case RequestCode.GET_BROKER_CLUSTER_INFO if self.brokers is not None:
                return ClusterInfo(self.brokers, {"DefaultCluster": tuple(self.brokers)}).to_command()
            case RequestCode.GET_KVLIST_BY_NAMESPACE if request.ext.get("namespace") in self.kv:
                return KvTable(self.kv[request.ext["namespace"]]).to_command()
            case _:
                return refusal(3, f" request type {request.code} not supported")


def route_of(
    addresses: dict[str, str], *, queues: int = 4, perm: int = Permission.READ | Permission.WRITE
) -> TopicRouteData:
    """Returns a topic's route over masters (name to address), with so many queues on each."""
    return TopicRouteData(
        queue_datas=tuple(QueueData(name, queues, queues, perm) for name in addresses),
        broker_datas=tuple(BrokerData("DefaultCluster", name, {0: address}) for name, address in addresses.items()),
    )


def topics_asked(server: ScriptedServer) -> list[str]:
    """Returns the topics of the route requests, oldest first."""
    return [GetRouteInfo.from_command(command).topic for command in server.of(ROUTE)]


# --- Bytes that are not RocketMQ's


@asynccontextmanager
async def raw_server(handler: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    """Yields the address of a server that passes each connection's stream to `handler`, and closes it afterwards."""

    async def serve_one(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await handler(stream)
            except trio.BrokenResourceError:
                return

    async with open_owned_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve_one, 0, host="127.0.0.1"))
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"


def says(data: bytes) -> Callable[[trio.SocketStream], Awaitable[None]]:
    """Returns a handler that reads something, writes these bytes and closes."""

    async def handler(stream: trio.SocketStream) -> None:
        if await stream.receive_some(65536):
            await stream.send_all(data)

    return handler
