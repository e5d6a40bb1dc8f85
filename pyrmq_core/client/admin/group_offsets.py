"""Changes of a group's offsets: in a whole topic, in one queue, or copied from another group.

A broker of 5.x stores the new offsets, and returns them at the members' next pulls. Until then it ignores commits. A
broker of 4.9 sends the new offsets to the members, and cannot reset a group without members. In that case this module
commits the offsets itself, as `mqadmin` does. Sources: tools/command/offset/ResetOffsetByTimeCommand.java,
tools/admin/DefaultMQAdminExtImpl.java (resetOffsetByTimestamp, resetOffsetByTimestampOld), 5.4.0 and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from pyrmq_core.client.admin.group_tables import connections_of, progress_of, tenant_queue
from pyrmq_core.client.admin.html_tables import TableRows
from pyrmq_core.client.admin.servers import AdminServers, Server, change_each
from pyrmq_core.client.admin.values import OffsetChange
from pyrmq_core.client.arguments import MAX_LONG, first_millisecond, queue_of, whole_number
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.query_many import query_many
from pyrmq_core.errors import BrokerNotFound, InvalidArgument, InvalidState, ResponseError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.versions import V5_0_0, version_name
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, RETRY_PREFIX, check_topic
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.requests.broker.consumer_admin import OffsetsReset, ResetOffset
from pyrmq_core.protocol.requests.broker.group_admin import CloneGroupOffset

# The times that mean the end of a queue (in RocketMQ's requests), and a time before any message.
LATEST_MS: Final = -1
EARLIEST_MS: Final = 0


@dataclass(frozen=True, slots=True)
class _Before:
    offsets: dict[MessageQueue, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)


class GroupOffsets:
    """The operations that change one consumer group's offsets (reset, seek, clone), at all masters of a topic."""

    def __init__(self, servers: AdminServers, group: str) -> None:
        self._servers = servers
        self._group = group
        self._on_wire = servers.on_wire(group)
        self._queues = QueueOffsets(servers.session, group, timeout=servers.timeout, namespace=servers.namespace)

    async def reset(
        self, topic: str, to: datetime | Literal["earliest", "latest"], *, offline: bool
    ) -> tuple[OffsetChange, ...]:
        when_ms = _when_ms(to)
        masters = await self._masters_of(topic)
        before = await self._before(topic, masters.values())
        if offline:
            await self.check_offline((await self._servers.masters(None)).values())
        changes: list[OffsetChange] = []

        async def change(server: Server) -> None:
            request = ResetOffset(self._servers.on_wire(topic), self._on_wire, when_ms, is_force=True)
            try:
                changes.extend(await self._reset_at(server, request, before))
            except ResponseError as error:
                if not await self._needs_members(error, server, before):
                    raise
                changes.extend(await self._commit(topic, {server.name: server}, when_ms, before))

        await change_each(masters.values(), change)
        return TableRows(sorted(changes, key=lambda change: change.queue))

    async def preview_reset(
        self, topic: str, to: datetime | int | Literal["earliest", "latest"], queue: MessageQueue | None
    ) -> tuple[OffsetChange, ...]:
        if isinstance(to, int) and queue is None:
            raise InvalidArgument(f"to={to}: an offset is that of one queue; name the queue")
        when_ms = EARLIEST_MS if isinstance(to, int) else _when_ms(to)
        masters = await self._masters_of(topic)
        before = await self._before(topic, masters.values())
        offsets = await self._offsets_at(topic, masters, when_ms)
        if queue is not None:
            if queue not in offsets:
                raise InvalidArgument(f"topic {topic} has no queue {queue.broker_name}/{queue.queue_id}")
            if isinstance(to, int):
                await self._check_bounds(queue, to)
            offsets = {queue: to if isinstance(to, int) else offsets[queue]}
        return tuple(OffsetChange(queue, before.offsets.get(queue), offsets[queue]) for queue in sorted(offsets))

    async def seek(self, queue: MessageQueue, offset: int) -> OffsetChange:
        check_topic(queue_of(queue).topic)
        whole_number("offset", offset, 0, MAX_LONG)
        server = (await self._masters_of(queue.topic)).get(queue.broker_name)
        if server is None:
            raise BrokerNotFound(
                f"topic {queue.topic} is not on broker {queue.broker_name}, or that one has no master",
                broker_name=queue.broker_name,
            )
        before = await self._before(queue.topic, [server])
        await self._check_bounds(queue, offset)
        if before.versions[server.name] >= V5_0_0:
            on_wire = self._servers.on_wire(queue.topic)
            request = ResetOffset(on_wire, self._on_wire, EARLIEST_MS, True, queue.queue_id, offset)
            try:
                (change,) = await self._reset_at(server, request, before)
                return change
            except ResponseError as error:
                if not await self._needs_members(error, server, before):
                    raise
        elif await self._is_online([server]):
            version = version_name(before.versions[server.name])
            raise InvalidState(
                f"{server} is of {version}, which resets all queues of a topic or none, and members of {self._group} "
                "are connected; stop them first, or reset the topic"
            )
        await self._queues.commit(queue, offset)
        return OffsetChange(queue, before.offsets.get(queue), offset)

    async def clone(self, to: str, topic: str | None) -> tuple[str, ...]:
        masters = (await self._servers.masters(None)).values()
        target = GroupOffsets(self._servers, to)
        await target.check_offline(masters)
        topics_at = await query_many(masters, self._topics_at)
        named = None if topic is None else self._servers.on_wire(topic)
        copied: set[str] = set()

        async def copy(server: Server) -> None:
            for name in topics_at[server]:
                if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) or named not in (None, name):
                    continue
                # For a request without a topic RocketMQ's brokers copy nothing.
                request = CloneGroupOffset(self._on_wire, target._on_wire, name, offline=True)
                await self._servers.ask(server, request.to_command(), f"group {to}")
                copied.add(without_namespace(name, self._servers.namespace))

        await change_each(topics_at, copy)
        if not copied:
            where = "any topic" if topic is None else f"topic {topic}"
            raise InvalidArgument(f"group {self._group} has no offsets in {where}; nothing is copied")
        return tuple(sorted(copied))

    async def check_offline(self, servers: Iterable[Server]) -> None:
        if await self._is_online(servers):
            raise InvalidState(f"members of group {self._group} are connected; stop them first")

    async def _is_online(self, servers: Iterable[Server]) -> bool:
        connections = await query_many(servers, lambda server: connections_of(self._servers, server, self._on_wire))
        return any(answer.connections for answer in connections.values())

    async def _topics_at(self, server: Server) -> tuple[str, ...]:
        progress = await progress_of(self._servers, server, self._on_wire, None, times=False)
        return tuple(sorted({queue.topic for queue in progress.stats.offsets}))

    async def _masters_of(self, topic: str) -> dict[str, Server]:
        routes = self._servers.session.routes
        route = await routes.refresh(self._servers.on_wire(topic), timeout=self._servers.timeout)
        if route is None:
            raise routes.no_route(topic)
        for broker in route.broker_datas:
            if broker.master is None:
                raise BrokerNotFound(
                    f"broker {broker.broker_name} of topic {topic} has no master now; no offset was changed",
                    broker_name=broker.broker_name,
                )
        return {
            broker.broker_name: Server(broker.broker_name, broker.master)
            for broker in sorted(route.broker_datas, key=lambda broker: broker.broker_name)
            if broker.master is not None
        }

    async def _before(self, topic: str, servers: Iterable[Server]) -> _Before:
        on_wire, namespace = self._servers.on_wire(topic), self._servers.namespace
        progress = await query_many(
            servers, lambda server: progress_of(self._servers, server, self._on_wire, on_wire, times=False)
        )
        before = _Before(versions={server.name: answer.version for server, answer in progress.items()})
        for answer in progress.values():
            for queue, row in answer.stats.offsets.items():
                if row.consumer_offset >= 0:
                    before.offsets[tenant_queue(queue, namespace)] = row.consumer_offset
        return before

    async def _reset_at(self, server: Server, request: ResetOffset, before: _Before) -> list[OffsetChange]:
        about = f"group {self._group} and topic {request.topic}"
        answer = await self._servers.ask(server, request.to_command(), about)
        offsets = OffsetsReset.from_command(answer).offsets
        own_offsets = {tenant_queue(queue, self._servers.namespace): offset for queue, offset in offsets.items()}
        return [OffsetChange(queue, before.offsets.get(queue), offset) for queue, offset in own_offsets.items()]

    async def _needs_members(self, error: ResponseError, server: Server, before: _Before) -> bool:
        """Returns whether a broker refused a reset because the group has no members. `before` has its version."""
        # 4.9 answers SYSTEM_ERROR if the group has neither members nor an offset.
        of_old = error.code == ResponseCode.SYSTEM_ERROR and before.versions[server.name] < V5_0_0
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE and not of_old:
            return False
        return not await self._is_online((await self._servers.masters(None)).values())

    async def _commit(
        self, topic: str, masters: dict[str, Server], when_ms: int, before: _Before
    ) -> tuple[OffsetChange, ...]:
        offsets = await self._offsets_at(topic, masters, when_ms)
        await self._queues.commit_offsets(offsets)
        return TableRows(OffsetChange(queue, before.offsets.get(queue), offsets[queue]) for queue in sorted(offsets))

    async def _offsets_at(self, topic: str, masters: dict[str, Server], when_ms: int) -> dict[MessageQueue, int]:
        queues = [queue for queue in await self._queues.message_queues(topic) if queue.broker_name in masters]
        if when_ms == LATEST_MS:
            return await self._queues.max_offsets(queues)
        if when_ms == EARLIEST_MS:
            return await self._queues.min_offsets(queues)
        return await self._queues.offsets_at(dict.fromkeys(queues, when_ms))

    async def _check_bounds(self, queue: MessageQueue, offset: int) -> None:
        bounds = (await self._queues.offset_bounds([queue]))[queue]
        if not bounds.start <= offset <= bounds.end:
            raise InvalidArgument(f"{queue} has offsets from {bounds.start} to {bounds.end}; {offset} is none of them")


def _when_ms(to: object) -> int:
    match to:
        case "earliest":
            return EARLIEST_MS
        case "latest":
            return LATEST_MS
        case datetime():
            return max(EARLIEST_MS, first_millisecond(to))
        case _:
            raise InvalidArgument(f"to={to!r}: it is 'earliest', 'latest' or a datetime")
