"""`Admin.topics`: the list of topics, their offsets and rates, permissions and order configuration.

Offsets and rates come from all brokers in the topic's route.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from pyrmq_core.client.admin.chosen_brokers import one_figure
from pyrmq_core.client.admin.group_tables import (
    BrokerProgress,
    connections_of,
    members_of,
    progress_of,
    queue_progress,
)
from pyrmq_core.client.admin.servers import AdminFamily, AdminServers, Gathered, Server, change_each
from pyrmq_core.client.admin.values import (
    GroupProgress,
    QueueProgress,
    QueueStats,
    TopicConsumer,
    TopicConsumers,
    TopicGroupNames,
    TopicRates,
    TopicStats,
)
from pyrmq_core.client.query_many import query_many
from pyrmq_core.committed.ranges import MANIFEST_NAMESPACE, manifests_in
from pyrmq_core.errors import InvalidArgument, RocketMQError
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.names import check_topic
from pyrmq_core.protocol.messages.namespaces import is_reachable, without_namespace
from pyrmq_core.protocol.requests.broker.topic_admin import GetTopicConfig, TopicConfigFound, UpdateTopic
from pyrmq_core.protocol.requests.figures.topic_stats import (
    GetTopicStats,
    QueryTopicGroups,
    TopicGroups,
    TopicOffset,
    TopicStatsTable,
)
from pyrmq_core.protocol.requests.groups.connections import ConsumerConnections
from pyrmq_core.protocol.requests.nameserver.kv_config import (
    DeleteKvConfig,
    GetKvConfig,
    GetKvList,
    KvConfig,
    KvTable,
    PutKvConfig,
)
from pyrmq_core.protocol.requests.nameserver.topic_lists import GetAllTopicList, GetTopicsByCluster, TopicList
from pyrmq_core.protocol.routes.route import BrokerData, TopicRouteData
from pyrmq_core.protocol.routes.topic_config import TopicConfigTable

T = TypeVar("T")

# The most groups of a topic that `consumers` queries by default.
MAX_CONSUMERS: Final = 200
# The most digits of a number of queues in an order configuration.
MOST_DIGITS: Final = 10
# The KV namespace of order topics (common/namesrv/NamesrvUtil.java). A value is such as `broker-a:4;broker-b:4`.
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
PERMISSIONS: Final = (Permission.WRITE, Permission.READ, Permission.READ | Permission.WRITE)


class Topics(AdminFamily):
    """Administration of topics: their list, offsets, rates, permissions and order configurations."""

    async def list(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """Returns all topics that a NameServer knows, including RocketMQ's own, or one cluster's topics, sorted.

        With a namespace, returns the topics of the namespace and RocketMQ's own.
        """
        query = GetAllTopicList() if cluster is None else GetTopicsByCluster(cluster)
        topics = await self._servers.ask_nameserver(
            query.to_command(), lambda answer: TopicList.from_command(answer).topics
        )
        namespace = self._servers.namespace
        return tuple(sorted(without_namespace(topic, namespace) for topic in topics if is_reachable(topic, namespace)))

    async def stats(self, topic: str) -> TopicStats:
        """Returns the offsets of each queue, from all brokers that answer. Raises `NoRoute` for an unknown topic.

        A broker without a master is queried at the slave with the lowest id.
        """
        command = GetTopicStats(self._servers.on_wire(topic)).to_command()
        gathered = await self._ask_readers(topic, command, TopicStatsTable.from_command)
        queues = {
            replace(queue, topic=topic): _queue_stats(offset)
            for table in gathered.answers.values()
            for queue, offset in table.offsets.items()
        }
        rates = [table.put_tps for table in gathered.answers.values() if table.put_tps is not None]
        return TopicStats(dict(sorted(queues.items())), sum(rates) if rates else None, gathered.failures)

    async def groups(self, topic: str) -> tuple[str, ...]:
        """Returns the groups that subscribe to the topic or have offsets in it at any broker that answers, sorted."""
        return (await self.group_names(topic)).groups

    async def group_names(self, topic: str) -> TopicGroupNames:
        """Returns the groups that subscribe to the topic or have offsets in it, sorted, and the errors of brokers."""
        command = QueryTopicGroups(self._servers.on_wire(topic)).to_command()
        gathered = await self._ask_readers(topic, command, TopicGroups.from_command)
        names = {name for answer in gathered.answers.values() for name in answer.groups}
        namespace = self._servers.namespace
        own = sorted(without_namespace(name, namespace) for name in names if is_reachable(name, namespace))
        return TopicGroupNames(tuple(own), gathered.failures)

    async def consumers(self, topic: str, *, most: int = MAX_CONSUMERS) -> TopicConsumers:
        """Returns the groups of the topic with their members, lag and oldest waiting message, greatest lag first.

        The first `most` groups by name are queried. Each group costs up to three queries at each broker.
        """
        named, readers = await self.group_names(topic), await self._servers.readers(topic)
        groups = named.groups[:most]

        async def ask(key: tuple[str, Server]) -> tuple[BrokerProgress, ConsumerConnections] | RocketMQError:
            group, server = self._servers.on_wire(key[0]), key[1]
            try:
                progress = await progress_of(self._servers, server, group, self._servers.on_wire(topic), times=True)
                return progress, await connections_of(self._servers, server, group)
            except RocketMQError as error:
                return error

        answers = await query_many([(group, server) for group in groups for server in readers], ask)
        failures = {
            **named.failures,
            **{key[1].name: answer for key, answer in answers.items() if isinstance(answer, RocketMQError)},
        }
        there = {key: answer for key, answer in answers.items() if not isinstance(answer, RocketMQError)}
        if answers and not there:
            raise next(iter(failures.values()))
        now = datetime.now(UTC)
        consumers = [
            self._consumer(group, [there[group, server] for server in readers if (group, server) in there], now)
            for group in groups
        ]
        consumers.sort(key=lambda consumer: (-(consumer.lag or 0), consumer.group))
        return TopicConsumers(tuple(consumers), len(named.groups) - len(groups), failures)

    async def rates(self, topic: str, groups: Iterable[str] = ()) -> TopicRates:
        """Returns messages a second over the last minute: stored in the topic, and received by each of the groups.

        They are the brokers' own statistics, which every release has. A broker without such a statistic counts as 0.
        """
        on_wire, names = self._servers.on_wire(topic), tuple(groups)
        keys = {name: f"{on_wire}@{self._servers.on_wire(name)}" for name in names}

        async def ask(server: Server) -> tuple[float, dict[str, float]]:
            put = await self._minute(server, "TOPIC_PUT_NUMS", on_wire)
            return put, {name: await self._minute(server, "GROUP_GET_NUMS", key) for name, key in keys.items()}

        gathered = await self._servers.gather(await self._servers.readers(topic), ask)
        got = {name: sum(rates[name] for _, rates in gathered.answers.values()) for name in names}
        return TopicRates(sum(put for put, _ in gathered.answers.values()), got, gathered.failures)

    async def clusters(self, topic: str) -> tuple[str, ...]:
        """Returns the clusters whose brokers have the topic, sorted. Raises `NoRoute` for an unknown topic."""
        return tuple(sorted({broker.cluster for broker in (await self._route(topic)).broker_datas}))

    async def configs(self, topic: str) -> Gathered[TopicConfig]:
        """Returns the topic's settings by broker name, from all brokers of its route that answer, even before 5.0."""

        async def ask(server: Server) -> TopicConfig:
            return replace(await self._config(server, topic), topic=topic)

        return await self._servers.gather(await self._servers.readers(topic), ask)

    async def update_perm(
        self, topic: str, perm: int, *, broker: str | None = None, cluster: str | None = None
    ) -> dict[str, tuple[int, int]]:
        """Sets the topic's permission to read (4), write (2) or both (6). Its other settings do not change.

        The change is made at the named broker, at the brokers of the cluster, or at all brokers of the topic. Returns
        the old and new permission by broker name, once a NameServer reports the new permission. Raises `NoRoute` if
        this takes longer than the timeout.
        """
        check_topic(topic)
        if perm not in PERMISSIONS:
            raise InvalidArgument(f"perm={perm!r}: 2 is to write, 4 to read, 6 both")
        route = await self._route(topic)
        masters = _masters_of(topic, route, broker, cluster)
        changes = dict[str, tuple[int, int]]()

        async def change(server: Server) -> None:
            config = await self._config(server, topic)
            command = UpdateTopic.of(replace(config, perm=perm, attributes={})).to_command()
            await self._servers.ask(server, command, f"topic {topic}")
            changes[server.name] = (int(config.perm), int(perm))

        await change_each(masters, change)
        expected = {name: perm for name, (_, perm) in changes.items()}
        await self._servers.wait_announced(topic, "changed", expected, lambda data: data.perm)
        return changes

    async def order(self, topic: str) -> dict[str, int] | None:
        """Returns the topic's order configuration, the number of queues by broker, or None if the topic has none.

        Producers write an order topic to these queues, even while a broker is down.
        """
        query = GetKvConfig(ORDER_NAMESPACE, self._servers.on_wire(topic)).to_command()
        text = await self._servers.ask_nameserver(query, KvConfig.value_in, ResponseCode.QUERY_NOT_FOUND)
        return None if text is None else parse_order(topic, text)

    async def set_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Sets the topic's order configuration, the number of its queues by broker name, at every NameServer.

        Raises `InvalidArgument` if `queues` is empty or has a number below 1.
        """
        check_topic(topic)
        if not queues or any(number < 1 or not name or set(name) & set(":;") for name, number in queues.items()):
            raise InvalidArgument(f"queues={dict(queues)!r}: it has broker names with a number of queues, 1 at least")
        command = PutKvConfig(ORDER_NAMESPACE, self._servers.on_wire(topic), order_text(queues)).to_command()
        await self._servers.change_nameservers(command, f"the order of topic {topic}")

    async def keep_order(self, topic: str, queues: Mapping[str, int] | None = None) -> tuple[str, ...]:
        """Sets the topic's order configuration at each NameServer that lacks it. Returns these NameServers' addresses.

        Without `queues` the configuration is copied from another NameServer. This is needed since NameServers share no
        data, and lose the configuration with their disk. Raises the first failure after every NameServer was queried.
        """
        wanted = queues or await self.order(topic)
        if wanted is None:
            return ()
        on_wire = self._servers.on_wire(topic)
        return await self._servers.keep_kv(ORDER_NAMESPACE, on_wire, order_text(wanted), f"the order of topic {topic}")

    async def keep_manifest(self, manifest: str, topic: str, broker: str) -> tuple[str, ...]:
        """Registers the topic `manifest`, which records the batches of committed writes to `topic`, at the NameServers.

        An order configuration also says that the one queue of `manifest` is at `broker`. Returns the addresses of the
        NameServers that lacked the registration or this configuration. Raises the first failure after all were queried.
        """
        of_tenant = self._servers.on_wire
        kinds = await self._servers.keep_kv(
            MANIFEST_NAMESPACE, of_tenant(manifest), of_tenant(topic), f"the kind of topic {manifest}"
        )
        return tuple({*kinds, *await self.keep_order(manifest, {broker: 1})})

    async def manifests(self) -> frozenset[str]:
        """Returns the manifests: topics that record the batches of committed writes."""
        tenant, tables = self._servers.namespace, []
        for namespace in (MANIFEST_NAMESPACE, ORDER_NAMESPACE):
            query = GetKvList(namespace).to_command()
            table = await self._servers.ask_nameserver(query, KvTable.table_in, ResponseCode.QUERY_NOT_FOUND)
            tables.append(table)
        names = (name for name in manifests_in(*tables) if is_reachable(name, tenant))
        return frozenset(without_namespace(name, tenant) for name in names)

    async def delete_order(self, topic: str) -> None:
        """Deletes the topic's order configuration at every NameServer. It is no error if there is none."""
        command = DeleteKvConfig(ORDER_NAMESPACE, self._servers.on_wire(topic)).to_command()
        await self._servers.change_nameservers(command, f"the order of topic {topic}")

    def _consumer(
        self, group: str, parts: Sequence[tuple[BrokerProgress, ConsumerConnections]], now: datetime
    ) -> TopicConsumer:
        rows: builtins.list[QueueProgress] = []
        for progress, _ in parts:
            rows += queue_progress(progress, {}, self._servers.namespace, now)
        tps = sum(progress.stats.consume_tps for progress, _ in parts)
        members = members_of(connections for _, connections in parts)
        rows.sort(key=lambda row: row.queue)
        return TopicConsumer(len(members), GroupProgress(group, tuple(rows), tps, {}, now))

    async def _route(self, topic: str) -> TopicRouteData:
        """Queries a NameServer and returns the topic's route, which the client keeps and refreshes from now on.

        Raises `NoRoute` if there is none.
        """
        routes = self._servers.session.routes
        route = await routes.refresh(self._servers.on_wire(topic), timeout=self._servers.timeout)
        if route is None:
            raise routes.no_route(topic)
        return route

    async def _ask_readers(self, topic: str, command: Command, read: Callable[[Command], T]) -> Gathered[T]:

        async def ask(server: Server) -> T:
            return read(await self._servers.ask(server, command, f"topic {topic}"))

        return await self._servers.gather(await self._servers.readers(topic), ask)

    async def _minute(self, server: Server, name: str, key: str) -> float:
        figure = await one_figure(self._servers, server, name, key)
        return 0.0 if figure is None else figure.minute.tps

    async def _config(self, server: Server, topic: str) -> TopicConfig:
        config = await topic_config_at(self._servers, server, topic)
        if config is None:
            raise InvalidArgument(f"{server} has no topic {topic}, though the NameServer names it in its route")
        return config


async def topic_config_at(servers: AdminServers, server: Server, topic: str) -> TopicConfig | None:
    """Returns a topic's settings at one broker, or None if the broker does not have the topic."""
    on_wire = servers.on_wire(topic)
    command = GetTopicConfig(on_wire).to_command()
    answer = await servers.session.call(server.address, command, timeout=servers.timeout)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        answer = await servers.ask(server, Command(RequestCode.GET_ALL_TOPIC_CONFIG))
        return TopicConfigTable.from_json(answer.body).topic_configs.get(on_wire)
    if answer.code != ResponseCode.SUCCESS:
        raise response_error(answer, command.code, str(server), f"topic {topic}")
    return TopicConfigFound.from_command(answer).config


def order_text(queues: Mapping[str, int]) -> str:
    return ";".join(f"{name}:{number}" for name, number in queues.items())


def parse_order(topic: str, text: str) -> dict[str, int]:
    queues = {}
    for part in filter(None, text.split(";")):
        name, _, number = part.partition(":")
        if not (name and number.isdecimal() and len(number) <= MOST_DIGITS):
            raise InvalidArgument(
                f"the order configuration of {topic} has {part[:80]!r}; it is broker:queues;broker:queues"
            )
        queues[name] = int(number)
    return queues


def _queue_stats(offset: TopicOffset) -> QueueStats:
    at_ms = offset.last_update_timestamp_ms
    return QueueStats(
        offset.min_offset, offset.max_offset, datetime.fromtimestamp(at_ms / 1000, UTC) if at_ms > 0 else None
    )


def _masters_of(topic: str, route: TopicRouteData, broker: str | None, cluster: str | None) -> builtins.list[Server]:

    def meant(data: BrokerData) -> bool:
        return broker in (None, data.broker_name) and cluster in (None, data.cluster)

    chosen = [data for data in route.broker_datas if meant(data)]
    if not chosen:
        there = ", ".join(sorted(f"{data.broker_name} of {data.cluster}" for data in route.broker_datas))
        raise InvalidArgument(f"topic {topic} is not on the broker or cluster that is named; it is on {there}")
    if headless := sorted(data.broker_name for data in chosen if data.master is None):
        raise InvalidArgument(f"topic {topic} is not changed: {', '.join(headless)} has no master at this time")
    return [Server(data.broker_name, data.master) for data in chosen if data.master is not None]
