"""`Admin.lite_topics`: lite topics of 5.5, and the groups whose clients subscribe to them.

Results are by broker name, because each lite topic and its subscriptions are at one broker only. Brokers before 5.5
refuse all requests (code 3). Source: tools/command/lite, 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from pyrmq_core.client.admin.servers import AdminFamily, Gathered, Server, change_each
from pyrmq_core.client.arguments import whole_number
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.lite_topics import lite_queue_name
from pyrmq_core.protocol.messages.names import LMQ_PREFIX, check_group, check_topic
from pyrmq_core.protocol.requests.figures.lite_topics import (
    BrokerLiteInfo,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteClientInfo,
    LiteGroupInfo,
    LiteTopicInfo,
    ParentTopicInfo,
    TriggerLiteDispatch,
)

T = TypeVar("T")

# The most names that a broker returns, and the number of lags that mqadmin shows.
MOST_NAMES: Final = 10_000
MOST_LAGS: Final = 20


class LiteTopics(AdminFamily):
    """Administration of lite topics (small topics within a parent `topic`, 5.5 or later) and of their subscribers."""

    async def brokers(self, *, cluster: str | None = None) -> Gathered[BrokerLiteInfo]:
        """Returns each broker's numbers of lite topics and subscriptions. Names include the namespace.

        `topics` has by parent topic the minutes after which its lite topics expire.
        """
        servers = list((await self._servers.brokers(cluster)).values())
        return await self._ask(servers, GetBrokerLiteInfo().to_command(), BrokerLiteInfo.from_command, "lite topics")

    async def parent(self, topic: str) -> Gathered[ParentTopicInfo]:
        """Returns the number of lite topics of the parent `topic`, and the groups that consume them, by broker name."""
        command, own = GetParentTopicInfo(self._servers.on_wire(topic)).to_command(), self._servers.own

        def read(answer: Command) -> ParentTopicInfo:
            info = ParentTopicInfo.from_command(answer)
            return replace(info, topic=topic, groups=tuple(sorted(map(own, info.groups or ()))))

        return await self._ask(await self._of(topic), command, read, f"topic {topic}")

    async def info(self, topic: str, lite_topic: str) -> Gathered[LiteTopicInfo]:
        """Returns the offsets and subscribers of a lite topic, by broker name."""
        lite_queue_name(topic, lite_topic)  # raises for a wrong name
        command, own = GetLiteTopicInfo(self._servers.on_wire(topic), lite_topic).to_command(), self._servers.own

        def read(answer: Command) -> LiteTopicInfo:
            info = LiteTopicInfo.from_command(answer)
            subscribers = tuple(replace(subscriber, group=own(subscriber.group)) for subscriber in info.subscribers)
            return replace(info, parent_topic=topic, subscribers=subscribers)

        return await self._ask(await self._of(topic), command, read, f"lite topic {lite_topic} of {topic}")

    async def client(self, topic: str, group: str, client_id: str) -> Gathered[LiteClientInfo]:
        """Returns the lite topics to which a group's client subscribes, by broker name: 10,000 names at most."""
        check_group(group)
        on_wire = self._servers.on_wire
        command = GetLiteClientInfo(on_wire(topic), on_wire(group), client_id, MOST_NAMES).to_command()
        prefix = f"{LMQ_PREFIX}{on_wire(topic)}$"

        def read(answer: Command) -> LiteClientInfo:
            info = LiteClientInfo.from_command(answer)
            names = info.lite_topics and tuple(sorted(name.removeprefix(prefix) for name in info.lite_topics))
            return replace(info, parent_topic=topic, group=group, lite_topics=names)

        return await self._ask(await self._of(topic), command, read, f"client {client_id} of group {group}")

    async def group(
        self, topic: str, group: str, lite_topic: str | None = None, *, most: int = MOST_LAGS
    ) -> Gathered[LiteGroupInfo]:
        """Returns a group's lag by broker name: in `lite_topic`, or in all, and in each of the `most` with most lag."""
        check_group(group)
        if lite_topic is not None:
            lite_queue_name(topic, lite_topic)
        most = whole_number("most", most, 1, MOST_NAMES)
        command = GetLiteGroupInfo(self._servers.on_wire(group), lite_topic, most).to_command()

        def read(answer: Command) -> LiteGroupInfo:
            return replace(LiteGroupInfo.from_command(answer), group=group, parent_topic=topic)

        return await self._ask(await self._of(topic), command, read, f"group {group}")

    async def dispatch(self, topic: str, group: str, client_id: str | None = None) -> tuple[str, ...]:
        """Makes brokers look again for messages for one or all of a group's clients. Returns the brokers' names.

        Brokers do so by themselves. This is for a client that does not receive its messages.
        """
        check_group(group)
        command = TriggerLiteDispatch(self._servers.on_wire(group), client_id).to_command()
        servers = await self._of(topic)
        return await change_each(servers, lambda server: self._servers.ask(server, command, f"group {group}"))

    async def _of(self, topic: str) -> list[Server]:
        check_topic(topic)
        return await self._servers.readers(topic)

    async def _ask(
        self, servers: list[Server], command: Command, read: Callable[[Command], T], about: str
    ) -> Gathered[T]:
        async def ask(server: Server) -> T:
            return read(await self._servers.ask(server, command, about))

        return await self._servers.gather(servers, ask)
