"""`Admin.groups`: consumer groups at all brokers, their members and offsets, and changes to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

import trio

from pyrmq_core.client.admin.chosen_brokers import chosen_brokers
from pyrmq_core.client.admin.group_offsets import GroupOffsets
from pyrmq_core.client.admin.group_tables import (
    BrokerProgress,
    configs_of,
    connections_of,
    first_known,
    groups_of,
    holders_of,
    members_of,
    progress_of,
    queue_progress,
    subscriptions_of,
    summaries,
    tenant_queue,
)
from pyrmq_core.client.admin.servers import AdminFamily, Gathered, Server, change_each
from pyrmq_core.client.admin.values import (
    GroupDescription,
    GroupList,
    GroupMember,
    GroupProgress,
    OffsetChange,
    QueueProgress,
)
from pyrmq_core.client.admin.wait_reasons import wait_reasons
from pyrmq_core.client.query_many import QUERIES_AT_ONCE, query_many
from pyrmq_core.errors import CallTimeout, InvalidArgument, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, RETRY_PREFIX, check_group, check_topic
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.requests.broker.topic_admin import DeleteTopic
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumerRunningInfo, GetConsumerRunningInfo
from pyrmq_core.protocol.requests.groups.connections import ConsumerConnections
from pyrmq_core.protocol.requests.groups.subscription_groups import (
    DeleteSubscriptionGroup,
    SubscriptionGroupConfig,
    UpdateSubscriptionGroup,
)
from pyrmq_core.protocol.requests.nameserver.topic_in_namesrv import DeleteTopicInNamesrv
from pyrmq_core.protocol.requests.pop.lite import BIND_TOPIC
from pyrmq_core.protocol.routes.route import TopicRouteData

First = TypeVar("First")
Second = TypeVar("Second")

# The most topics of a group whose permissions are queried: those with the greatest lag.
MAX_ROUTES: Final = 20


class Groups(AdminFamily):
    """Administration of consumer groups at all brokers.

    A method that reads queries each broker's master, or a slave if there is no master. The `failures` of its result
    name the brokers that did not answer. It raises an error only if none answers. A method that makes a change sends it
    to all masters. A failure at one does not stop it at the others, and the error has a note of the changed masters.
    """

    async def list(self) -> GroupList:
        """Returns all groups with their members, type and lag, including RocketMQ's own.

        With a namespace, returns only its groups.
        """
        servers = await self._servers.brokers()
        limit = trio.CapacityLimiter(QUERIES_AT_ONCE)
        gathered = await self._servers.gather(servers.values(), lambda server: groups_of(self._servers, server, limit))
        return GroupList(summaries(gathered.answers, self._servers.namespace), gathered.failures)

    async def config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Returns the group's settings by broker name. Masters that do not know the group are left out."""
        on_wire = self._on_wire(group)
        masters = await self._servers.masters(None)
        answers = await query_many(masters.values(), lambda server: configs_of(self._servers, server))
        configs_at = {server.name: configs[on_wire] for server, configs in answers.items() if on_wire in configs}
        return {name: self._tenant_config(config) for name, config in configs_at.items()}

    async def describe(self, group: str, *, running_info: bool = True) -> GroupDescription:
        """Returns the group's settings, its subscriptions, and its members with the queues that they read.

        A member that does not answer in time has an `error`. With `running_info=False` no member is queried. Raises
        `InvalidArgument` if none of the brokers that answer has the group.
        """
        on_wire = self._on_wire(group)

        async def described(server: Server) -> tuple[SubscriptionGroupConfig | None, ConsumerConnections]:
            configs = await configs_of(self._servers, server)
            return configs.get(on_wire), await connections_of(self._servers, server, on_wire)

        servers = await self._servers.brokers()
        gathered = await self._servers.gather(servers.values(), described)
        configs = {name: config for name, (config, _) in gathered.answers.items() if config is not None}
        connections = [answer for _, answer in gathered.answers.values()]
        if not configs and not any(answer.connections for answer in connections):
            raise _unknown(group, gathered.failures)
        namespace = self._servers.namespace
        members = members_of(connections)
        there = {
            name: {member.client_id for member in answer.connections} for name, (_, answer) in gathered.answers.items()
        }
        return GroupDescription(
            group=group,
            configs={name: self._tenant_config(config) for name, config in configs.items()},
            members=await self._reported(on_wire, members, there, servers) if running_info else members,
            consume_type=first_known(answer.consume_type for answer in connections),
            message_model=first_known(answer.message_model for answer in connections),
            consume_from_where=first_known(answer.consume_from_where for answer in connections),
            subscriptions=subscriptions_of(connections, namespace),
            failures=gathered.failures,
        )

    async def progress(self, group: str, *, topic: str | None = None, members: bool = False) -> GroupProgress:
        """Returns each queue's offsets, lag and time of its oldest waiting message, for one topic or all.

        While members are connected, the topics are those to which they subscribe. With `members` each queue names the
        client that reads it, and `reasons` says why messages wait. That takes a query for each member and for each
        topic with lag. For a group without offsets, the result has no queues.
        """
        on_wire, namespace = self._on_wire(group), self._servers.namespace
        topic_on_wire = None if topic is None else self._servers.on_wire(topic)
        servers = await self._servers.brokers()

        async def offsets() -> Gathered[BrokerProgress]:
            return await self._servers.gather(
                servers.values(), lambda server: progress_of(self._servers, server, on_wire, topic_on_wire, times=True)
            )

        async def described() -> GroupDescription | RocketMQError | None:
            try:
                return await self.describe(group) if members else None
            except RocketMQError as error:
                return error

        gathered, description = await _together(offsets, described)
        holders, now = holders_of(description), datetime.now(UTC)
        rows: list[QueueProgress] = []
        for answer in gathered.answers.values():
            rows += queue_progress(answer, holders, namespace, now)
        rows.sort(key=lambda row: row.queue)
        tps = sum(answer.stats.consume_tps for answer in gathered.answers.values())
        progress = GroupProgress(group, tuple(rows), tps, gathered.failures, now)
        if isinstance(description, GroupDescription):
            reasons = wait_reasons(rows, description, await self._permissions(rows), now)
            return replace(progress, description=description, reasons=reasons)
        return replace(progress, members_error=description)

    async def stack(self, group: str, client_id: str) -> str:
        """Returns the stacks of all threads of a member, as the member formats them.

        Raises `InvalidArgument` if none of the brokers that answer has the member, or if the member returns no stacks.
        """
        on_wire = self._on_wire(group)
        servers = await self._servers.brokers()
        gathered = await self._servers.gather(
            servers.values(), lambda server: connections_of(self._servers, server, on_wire)
        )
        for name, answer in gathered.answers.items():
            if any(connection.client_id == client_id for connection in answer.connections):
                info = await self._running_info(servers[name], on_wire, client_id, jstack=True)
                if info.jstack is None:
                    raise InvalidArgument(f"client {client_id} of group {group} gives no stacks")
                return info.jstack
        silent = f"; {', '.join(sorted(gathered.failures))} gave no answer" if gathered.failures else ""
        raise InvalidArgument(f"group {group} has no member {client_id}{silent}; pyrmq group describe lists them")

    async def create(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        consume_enable: bool | None = None,
        consume_from_min_enable: bool | None = None,
        consume_broadcast_enable: bool | None = None,
        consume_message_orderly: bool | None = None,
        retry_queue_nums: int | None = None,
        retry_max_times: int | None = None,
        which_broker_when_consume_slowly: int | None = None,
        notify_consumer_ids_changed_enable: bool | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Creates the group on every master of the cluster, or of all clusters, or changes its settings.

        With `broker`, only the master of that name is changed. A setting that is None keeps its value, or has
        RocketMQ's default in a new group. `attributes` are those of 5.x, such as `lite.bind.topic`.
        """
        changes: dict[str, bool | int | None] = {
            "consume_enable": consume_enable,
            "consume_from_min_enable": consume_from_min_enable,
            "consume_broadcast_enable": consume_broadcast_enable,
            "consume_message_orderly": consume_message_orderly,
            "retry_queue_nums": retry_queue_nums,
            "retry_max_times": retry_max_times,
            "which_broker_when_consume_slowly": which_broker_when_consume_slowly,
            "notify_consumer_ids_changed_enable": notify_consumer_ids_changed_enable,
        }
        masters = await self._masters_of(group, changes, cluster, broker)
        previews = await self._previews(group, changes, masters)
        # A request has changes of attributes: + adds an attribute or sets its value.
        added = {
            f"+{name}": self._on_wire(value) if name == BIND_TOPIC else value
            for name, value in (attributes or {}).items()
        }

        async def change(server: Server) -> None:
            config = previews[server.name][1]
            config = replace(config, group_name=self._on_wire(group), others={**config.others, "attributes": added})
            await self._servers.ask(server, UpdateSubscriptionGroup(config).to_command(), f"group {group}")

        await change_each(masters, change)

    async def preview_create(
        self,
        group: str,
        changes: Mapping[str, bool | int | None],
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> dict[str, tuple[SubscriptionGroupConfig | None, SubscriptionGroupConfig]]:
        """Returns the group's settings before and after `create`, by broker name, and changes nothing.

        `changes` has the names of `create`'s parameters. The settings before are None at a master without the group.
        """
        return await self._previews(group, changes, await self._masters_of(group, changes, cluster, broker))

    async def _masters_of(
        self, group: str, changes: Mapping[str, bool | int | None], cluster: str | None, broker: str | None
    ) -> tuple[Server, ...]:
        check_group(group)
        for name, least in (("retry_max_times", -1), ("retry_queue_nums", 0)):
            if (value := changes.get(name)) is not None and value < least:
                raise InvalidArgument(f"{name}={value}: it is {least} or more")
        return await chosen_brokers(self._servers, broker, cluster)

    async def _previews(
        self, group: str, changes: Mapping[str, bool | int | None], masters: Iterable[Server]
    ) -> dict[str, tuple[SubscriptionGroupConfig | None, SubscriptionGroupConfig]]:
        on_wire, wanted = self._on_wire(group), {name: value for name, value in changes.items() if value is not None}
        configs_at = await query_many(masters, lambda server: configs_of(self._servers, server))
        previews = {}
        for server, configs in configs_at.items():
            config = configs.get(on_wire)
            before = None if config is None else self._tenant_config(config)
            after = replace(before or SubscriptionGroupConfig(group), **wanted)  # type: ignore[arg-type]
            previews[server.name] = (before, after)
        return previews

    async def delete(self, group: str, *, cluster: str | None = None, force: bool = False) -> None:
        """Deletes the group, its offsets, and its retry and dead-letter topics on every master, as `mqadmin` does.

        Raises `InvalidState` while members are connected, unless `force` is set. With `force`, connected members create
        the group again. A group that does not exist is no error.
        """
        check_group(group)
        on_wire, masters = self._on_wire(group), await self._servers.masters(cluster)
        if not force:
            await self._offsets(group).check_offline(masters.values())
        request = DeleteSubscriptionGroup(on_wire, clean_offset=True, remove_offset=True).to_command()
        topics = [prefix + on_wire for prefix in (RETRY_PREFIX, DLQ_PREFIX)]

        async def remove(server: Server) -> None:
            await self._servers.ask(server, request, f"group {group}")
            for topic in topics:
                await self._servers.ask(server, DeleteTopic(topic).to_command(), f"topic {topic}")

        await change_each(masters.values(), remove)
        for topic in topics:
            command = DeleteTopicInNamesrv(topic, cluster).to_command()
            await self._servers.change_nameservers(command, f"topic {topic}")

    async def reset(
        self,
        group: str,
        topic: str,
        to: datetime | Literal["earliest", "latest"],
        *,
        offline: bool = False,
    ) -> tuple[OffsetChange, ...]:
        """Sets the group's offset in each queue of the topic: to the queue's start or end, or to a time.

        A time means the first message stored then or later. Returns the old and new offsets. Connected members continue
        at the new offsets. With `offline` the call raises `InvalidState` if a member is connected. Brokers before 5.0
        cannot reset a group without members, so the new offsets are committed to them instead. Raises `InvalidArgument`
        for a time without a zone.
        """
        check_topic(topic)
        return await self._offsets(group).reset(topic, to, offline=offline)

    async def preview_reset(
        self,
        group: str,
        topic: str,
        to: datetime | int | Literal["earliest", "latest"],
        *,
        queue: MessageQueue | None = None,
    ) -> tuple[OffsetChange, ...]:
        """Returns the changes that `reset` would make now, and makes none. With `queue`, only the change of this queue.

        With `queue`, `to` may also be an offset, as for `seek`. Raises `NoRoute` for an unknown topic, and
        `InvalidArgument` for a time without a zone or an offset outside the queue.
        """
        check_topic(topic)
        return await self._offsets(group).preview_reset(topic, to, queue)

    async def seek(self, group: str, queue: MessageQueue, offset: int) -> OffsetChange:
        """Sets the group's offset in one queue. Returns the offsets before and after.

        Raises `InvalidArgument` for an offset outside the queue. Raises `InvalidState` if the broker is older than 5.0
        and members are connected, since it can only reset whole topics.
        """
        return await self._offsets(group).seek(queue, offset)

    async def clone(self, group: str, to: str, *, topic: str | None = None) -> tuple[str, ...]:
        """Copies the offsets of `group` to the group `to`, in one topic or in all. Returns the topics.

        Raises `InvalidState` while members of `to` are connected, and `InvalidArgument` if there are no offsets to
        copy.
        """
        check_group(to)
        return await self._offsets(group).clone(to, topic)

    def _offsets(self, group: str) -> GroupOffsets:
        return GroupOffsets(self._servers, group)

    def _on_wire(self, group: str) -> str:
        check_group(group)
        return self._servers.on_wire(group)

    def _tenant_config(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        return replace(config, group_name=without_namespace(config.group_name, self._servers.namespace))

    async def _permissions(self, rows: Iterable[QueueProgress]) -> dict[tuple[str, str], int]:
        lags = Counter[str]()
        for row in rows:
            lags[row.queue.topic] += max(0, row.lag)
        session = self._servers.session

        async def route(topic: str) -> TopicRouteData | None:
            try:
                return await session.routes.query(self._servers.on_wire(topic), timeout=self._servers.timeout)
            except RocketMQError:
                return None

        routes = await query_many((topic for topic, lag in lags.most_common(MAX_ROUTES) if lag), route)
        return {
            (topic, data.broker_name): data.perm
            for topic, topic_route in routes.items()
            if topic_route is not None
            for data in topic_route.queue_datas
        }

    async def _reported(
        self,
        group: str,
        members: tuple[GroupMember, ...],
        there: Mapping[str, set[str]],
        servers: Mapping[str, Server],
    ) -> tuple[GroupMember, ...]:

        deadline = trio.current_time() + self._servers.timeout

        async def reported(member: GroupMember) -> GroupMember:
            server = next(servers[name] for name, clients in there.items() if member.client_id in clients)
            with trio.move_on_at(deadline):
                try:
                    return replace(member, running_info=await self._running_info(server, group, member.client_id))
                except RocketMQError as error:
                    return replace(member, error=error)
            late = f"client {member.client_id} did not report within {self._servers.timeout:.3g} s"
            return replace(member, error=CallTimeout(late, address=server.address, request_left=True))

        reports = await query_many(members, reported)
        return tuple(reports[member] for member in members)

    async def _running_info(
        self, server: Server, group: str, client_id: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        query = GetConsumerRunningInfo(group, client_id, jstack).to_command()
        answer = await self._servers.ask(server, query, f"client {client_id}")
        return self._tenant_info(ConsumerRunningInfo.from_command(answer))

    def _tenant_info(self, info: ConsumerRunningInfo) -> ConsumerRunningInfo:
        namespace = self._servers.namespace
        return replace(
            info,
            queues={tenant_queue(queue, namespace): queue_info for queue, queue_info in info.queues.items()},
            pop_queues={tenant_queue(queue, namespace): queue_info for queue, queue_info in info.pop_queues.items()},
        )


def _unknown(group: str, failures: Mapping[str, RocketMQError]) -> InvalidArgument:
    silent = f"; {', '.join(sorted(failures))} gave no answer" if failures else ""
    return InvalidArgument(f"no broker knows a group {group}{silent}; look at its name, or create it")


async def _together(
    first: Callable[[], Awaitable[First]], second: Callable[[], Awaitable[Second]]
) -> tuple[First, Second]:
    results: list[Second] = []
    done = trio.Event()

    async def call() -> None:
        results.append(await second())
        done.set()

    async with open_owned_nursery() as nursery:
        nursery.start_soon(call)
        result = await first()
        await done.wait()
    return result, results[0]
