"""A NameServer on a free port, and callers with connections of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from pyrmq_core.network import ConnectionPool, Handler
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo
from pyrmq_core.protocol.routes.route import TopicRouteData
from pyrmq_core.servers.nameserver import NameServerConfig, RunningNameServer, run_nameserver
from pyrmq_core.servers.protocol.register_broker import RegisterBroker

TIMEOUT = 60.0


class Caller:
    """Connections of a broker or client to one NameServer."""

    def __init__(self, pool: ConnectionPool, address: str) -> None:
        self.pool = pool
        self.address = address

    async def call(self, command: Command) -> Command:
        return await self.pool.call(self.address, command, timeout=TIMEOUT)

    async def register(self, requested: RegisterBroker) -> None:
        assert (await self.call(requested.to_command())).code == 0

    async def route(self, topic: str) -> TopicRouteData | None:
        answer = await self.call(GetRouteInfo(topic).to_command())
        return TopicRouteData.from_json(answer.body) if answer.code == 0 else None

    async def wait_for(self, topic: str, expected: Callable[[TopicRouteData | None], bool]) -> None:
        with trio.fail_after(TIMEOUT):
            while not expected(await self.route(topic)):
                pass

    def hang_up(self) -> None:
        self.pool.close(self.address)


@asynccontextmanager
async def nameserver(
    *, wrap: Callable[[Handler], Handler] | None = None, **settings: object
) -> AsyncIterator[tuple[RunningNameServer, Callable[[], Caller]]]:
    """Yields a NameServer on a free port, and a function that makes callers with connections of their own."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    config = NameServerConfig().with_settings({"listenPort": "0", **texts})
    async with trio.open_nursery() as nursery:
        started = partial(run_nameserver, config, wrap_handler=wrap)
        running: RunningNameServer = await nursery.start(started)
        yield running, lambda: Caller(ConnectionPool(nursery), running.address)
        nursery.cancel_scope.cancel()
