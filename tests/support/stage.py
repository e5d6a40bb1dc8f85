"""A scripted NameServer and scripted brokers that know each other: the counterpart of a client under test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import trio
import trio.testing

from pyrmq_core.model import Permission
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from pyrmq_core.protocol.routes.route import TopicRouteData
from tests.support.memory_broker import MemoryBroker, Stored
from tests.support.scripted import BATCH, SEND, ScriptedServer, Table, route_of, scripted_server

AUTO_CREATE = "TBW102"


@dataclass
class Stage:
    """The servers by name, their tables and stores."""

    nameserver: ScriptedServer
    table: Table
    brokers: dict[str, ScriptedServer] = field(default_factory=dict)
    stores: dict[str, MemoryBroker] = field(default_factory=dict)

    @property
    def addresses(self) -> dict[str, str]:
        return {name: server.address for name, server in self.brokers.items()}

    def topic(
        self,
        name: str,
        *,
        queues: int = 4,
        perm: int = Permission.READ | Permission.WRITE,
        brokers: Sequence[str] | None = None,
    ) -> TopicRouteData:
        """Registers the topic's route at the NameServer, on these brokers (default: all)."""
        chosen = {name: self.addresses[name] for name in (self.brokers if brokers is None else brokers)}
        self.table.routes[name] = route = route_of(chosen, queues=queues, perm=perm)
        return route

    def auto_create(self, *, queues: int = 8) -> None:
        """Brokers make unknown topics, and announce them at once."""
        self.topic(AUTO_CREATE, queues=queues, perm=Permission.READ | Permission.WRITE | Permission.INHERIT)
        for name, store in self.stores.items():
            store.on_topic = lambda topic, nums, name=name: self._announce(name, topic, nums)

    async def heard_of(self, *names: str) -> None:
        """Returns when these brokers (default: all) answered a heartbeat, and the client has read it."""
        for name in names or self.brokers:
            await self.brokers[name].wait_seen(RequestCode.HEART_BEAT)
        await settled()

    def sends(self) -> list[tuple[str, SendMessage]]:
        """Returns every send in the order of arrival, with its broker."""
        arrivals = [
            (seen.at, name, SendMessage.from_command(seen.command))
            for name, server in self.brokers.items()
            for seen in server.seen
            if seen.command.code in (SEND, BATCH)
        ]
        return [(name, sent) for _, name, sent in sorted(arrivals, key=lambda arrival: arrival[0])]

    def stored(self, topic: str) -> list[Stored]:
        return [
            message for (stored_topic, _), messages in self._queues() if stored_topic == topic for message in messages
        ]

    def stored_bodies(self) -> set[bytes]:
        """Returns the bodies of all queues; batches are stored one message each."""
        return {message.body for _, messages in self._queues() for message in messages}

    def _queues(self) -> list[tuple[tuple[str, int], list[Stored]]]:
        # A copy made at once: the servers may run in another thread, where a late send adds a queue.
        return [queue for store in self.stores.values() for queue in list(store.queues.items())]

    def _announce(self, broker: str, topic: str, nums: int) -> None:
        route = self.table.routes.get(topic, TopicRouteData())
        if broker not in {data.broker_name for data in route.queue_datas}:
            added = route_of({broker: self.addresses[broker]}, queues=nums)
            self.table.routes[topic] = replace(
                route,
                queue_datas=route.queue_datas + added.queue_datas,
                broker_datas=route.broker_datas + added.broker_datas,
            )


async def settled() -> None:
    """Returns when every task waits for something and loopback has nothing more to bring."""
    await trio.testing.wait_all_tasks_blocked(0.01)


@asynccontextmanager
async def staged(*brokers: str, pull_cap: int = 32) -> AsyncIterator[Stage]:
    """Yields a NameServer and brokers of these names, without topics."""
    async with AsyncExitStack() as stack:
        table = Table()
        stage = Stage(await stack.enter_async_context(scripted_server(table)), table)
        for name in brokers:
            store = MemoryBroker(name, pull_cap=pull_cap)
            stage.stores[name] = store
            stage.brokers[name] = await stack.enter_async_context(scripted_server(store))
        yield stage
