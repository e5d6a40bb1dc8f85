"""`Admin`: methods about topics, clusters and KV values, and attributes such as `groups` with the other methods.

Source: tools/admin/DefaultMQAdminExt.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyrmq_core.client.admin.access import Accounts, Policies, Users
from pyrmq_core.client.admin.brokers import Brokers
from pyrmq_core.client.admin.groups import Groups
from pyrmq_core.client.admin.health import HealthBounds, take_health
from pyrmq_core.client.admin.health_rules import MAX_DISK, Health
from pyrmq_core.client.admin.lite_topics import LiteTopics
from pyrmq_core.client.admin.messages import Messages
from pyrmq_core.client.admin.nameservers import NameServers
from pyrmq_core.client.admin.producers import Producers
from pyrmq_core.client.admin.servers import AdminServers, Server, change_each
from pyrmq_core.client.admin.topics import ORDER_NAMESPACE, Topics, topic_config_at
from pyrmq_core.client.arguments import seconds_of
from pyrmq_core.client.client import Client
from pyrmq_core.client.client_settings import AnyClient, ClientChoice
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.session_owner import SessionOwner
from pyrmq_core.committed.ranges import MANIFEST_NAMESPACE
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.batch_topic import BATCH_QUEUE, QUEUE_TYPE, is_batch_topic
from pyrmq_core.protocol.messages.names import check_topic, is_system_topic
from pyrmq_core.protocol.requests.broker.topic_admin import DeleteTopic, GetTopicConfig, TopicConfigFound, UpdateTopic
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo
from pyrmq_core.protocol.requests.nameserver.kv_config import (
    DeleteKvConfig,
    GetKvConfig,
    GetKvList,
    KvConfig,
    KvTable,
    PutKvConfig,
)
from pyrmq_core.protocol.requests.nameserver.topic_in_namesrv import DeleteTopicInNamesrv
from pyrmq_core.protocol.routes.route import TopicRouteData

TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class AdminSettings(ClientChoice[AnyClient]):
    """The parameters of an `Admin`. `timeout`, in seconds, is for one request to a server."""

    timeout: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        super().__post_init__()
        seconds_of("timeout", self.timeout)


class Admin(SessionOwner[AdminSettings[Any]]):
    """Administration of a cluster, with its own client or a shared one. Errors name the server that refused.

    `namespace` is a prefix of topics and groups at the servers. Arguments and results are without it.
    """

    _KIND = "Admin"

    @parameters_of(AdminSettings[Client])
    def __init__(self, settings: AdminSettings[Client]) -> None:
        self._begin(settings, settings.shared_client(Client, "pyrmq_core.Client"))

    def _configure(self) -> None:
        settings = self._settings
        self._servers = AdminServers(self._session, self._life, timeout=settings.timeout, namespace=settings.namespace)

    async def cluster_info(self) -> ClusterInfo:
        """Returns every broker with its addresses, and the brokers of each cluster."""
        return await self._servers.cluster_info()

    @property
    def topics(self) -> Topics:
        """Methods about topics: their list, offsets, rates, permissions and order configurations."""
        return Topics(self._servers)

    @property
    def users(self) -> Users:
        """Methods that list, create, change and delete users of access control (5.3 and later)."""
        return Users(self._servers)

    @property
    def policies(self) -> Policies:
        """Methods that list and change access policies: the actions allowed or denied to a user (5.3 and later)."""
        return Policies(self._servers)

    @property
    def accounts(self) -> Accounts:
        """Methods that list and change the access accounts in the brokers' `plain_acl.yml` (before 5.3.3)."""
        return Accounts(self._servers)

    @property
    def brokers(self) -> Brokers:
        """Methods about brokers: their status, statistics and settings, and the removal of unused data."""
        return Brokers(self._servers)

    @property
    def nameservers(self) -> NameServers:
        """Methods that read and change the settings of NameServers."""
        return NameServers(self._servers)

    @property
    def groups(self) -> Groups:
        """Methods about consumer groups: their members, settings, offsets and lag."""
        return Groups(self._servers)

    @property
    def messages(self) -> Messages:
        """Methods about stored messages: look-ups by id and key, traces, and dead letters."""
        return Messages(self._servers)

    @property
    def lite_topics(self) -> LiteTopics:
        """Methods about lite topics of 5.5: their number, offsets and subscribers, and the lag of groups."""
        return LiteTopics(self._servers)

    @property
    def producers(self) -> Producers:
        """Methods that list the producers which are connected to brokers."""
        return Producers(self._servers)

    async def health(
        self,
        *,
        max_disk: int = MAX_DISK,
        max_lag: int | None = None,
        lag_of: Sequence[str] = (),
        groups: bool = False,
        before: Health | None = None,
    ) -> Health:
        """Returns checks of the cluster, failed and passed, by the rules of the command `pyrmq health`.

        A check fails if more than `max_disk` percent of a master's disk are used, or if one of the groups `lag_of` (by
        default all) is more than `max_lag` messages behind. With `groups`, the subscriptions of each group's members
        are compared, and dead letters of the last 24 hours are counted. With `before`, an earlier result, it also warns
        of disks that fill up and of lags that grow.
        """
        bounds = HealthBounds(max_disk, max_lag, lag_of)
        return await take_health(self._servers, bounds, of_groups=groups, before=before)

    async def route(self, topic: str) -> TopicRouteData:
        """Queries a NameServer and returns the topic's route. Raises `NoRoute` if there is none.

        The client keeps the route for its producers and consumers, and refreshes it from now on.
        """
        routes = self._servers.session.routes
        route = await routes.refresh(self._servers.on_wire(topic), timeout=self._servers.timeout)
        if route is None:
            raise routes.no_route(topic)
        return route

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        batch: bool = False,
        order: bool = False,
        perm: int = Permission.READ | Permission.WRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Creates or changes the topic, with `queues` queues, on every master of the cluster, or of all clusters.

        With `broker` only the master of that name is changed. `read_queues`, by default the same number, is larger
        while a topic shrinks, since queues that are no longer written to are still read. `batch` makes a batch topic of
        5.x: it stores a batch as one record, at a fraction of the broker's cost. Raises `InvalidArgument` if the topic
        exists without batches, or if a broker is older than 5.0 and `attributes` or `batch` are set. Then nothing is
        created.

        A failure at one master does not stop the change at the others. The error has a note of the changed masters. The
        call returns when a NameServer lists the topic at all these masters with this number of queues, so that keys are
        divided over all queues. Raises `NoRoute` if this takes longer than the timeout. The topic exists then, and
        brokers announce it later.

        With `order` the masters are added to the topic's order configuration at the NameServers, so that keys keep
        their queues while a broker is down. `queues=0`, with a `broker`, creates the topic there without queues. After
        a failure halfway the call can be repeated.
        """
        attributes = {**(attributes or {}), **({QUEUE_TYPE: BATCH_QUEUE} if batch else {})}
        reading = queues if read_queues is None else read_queues
        wanted = TopicConfig(topic, reading, queues, perm, order=order, attributes=attributes)
        masters = await self._masters_of(wanted, cluster, broker)
        fresh = {name: await self._changes(masters[name], topic, attributes) for name in masters}

        async def make(server: Server) -> None:
            config = replace(wanted, topic=self._servers.on_wire(topic), attributes=fresh[server.name])
            await self._servers.ask(server, UpdateTopic.of(config).to_command(), f"topic {topic}")

        await change_each(masters.values(), make)
        await self._servers.wait_announced(
            topic,
            "made",
            dict.fromkeys(masters, (reading, queues)),
            lambda data: (data.read_queue_nums, data.write_queue_nums),
        )
        if order:
            await self.topics.set_order(topic, (await self.topics.order(topic) or {}) | dict.fromkeys(masters, queues))

    async def preview_topic(
        self, config: TopicConfig, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, tuple[TopicConfig | None, TopicConfig]]:
        """Returns the topic's settings before and after `create_topic`, by broker name, and changes nothing.

        The settings before are None at a master without the topic. Raises the errors of `create_topic` for wrong
        settings.
        """
        previews: dict[str, tuple[TopicConfig | None, TopicConfig]] = {}
        for name, server in (await self._masters_of(config, cluster, broker)).items():
            await self._changes(server, config.topic, config.attributes)
            before = await topic_config_at(self._servers, server, config.topic)
            kept = {} if before is None else before.attributes
            after = replace(config, attributes={**kept, **config.attributes})
            previews[name] = (None if before is None else replace(before, topic=config.topic), after)
        return previews

    async def _masters_of(self, config: TopicConfig, cluster: str | None, broker: str | None) -> dict[str, Server]:
        check_topic(config.topic)
        if is_system_topic(config.topic):
            raise InvalidArgument(f"topic {config.topic} is RocketMQ's own; choose another name")
        queues, reading = config.write_queue_nums, config.read_queue_nums
        if min(queues, reading) < (0 if queues == reading and broker is not None else 1):
            raise InvalidArgument(f"queues={queues}, read_queues={reading}: a topic has 1 at least")
        if config.order and not queues:
            raise InvalidArgument("queues=0 with order=True: an order topic has 1 at least")
        masters = await self._servers.masters(cluster)
        if broker is not None:
            if broker not in masters:
                raise InvalidArgument(f"broker={broker!r}: the masters are {', '.join(sorted(masters))}")
            masters = {broker: masters[broker]}
        return masters

    async def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """Returns the topic's settings by broker name."""
        configs = {}
        for name, server in (await self._servers.masters(None)).items():
            config = await topic_config_at(self._servers, server, topic)
            if config is not None:
                configs[name] = replace(config, topic=self._servers.own(config.topic))
        return configs

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Deletes the topic and its messages on masters of the cluster, or of all clusters, then on the NameServers.

        A missing topic is no error. A failure at one master does not stop the deletion at the others, but then the
        NameServers keep the topic. The error has a note of the servers that deleted it. The order configuration is
        deleted when no broker has the topic any more. After a failure halfway the call can be repeated.
        """
        check_topic(topic)
        on_wire, about = self._servers.on_wire(topic), f"topic {topic}"
        masters = (await self._servers.masters(cluster)).values()
        request = DeleteTopic(on_wire).to_command()
        await change_each(masters, lambda server: self._servers.ask(server, request, about))
        await self._servers.change_nameservers(DeleteTopicInNamesrv(on_wire, cluster).to_command(), about)
        if await self._servers.session.routes.query(on_wire, timeout=self._servers.timeout) is None:
            for namespace in (ORDER_NAMESPACE, MANIFEST_NAMESPACE):
                await self._servers.change_nameservers(DeleteKvConfig(namespace, on_wire).to_command(), about)

    async def kv_value(self, namespace: str, key: str) -> str | None:
        """Returns a KV value from the first NameServer that has it, or None if none of the NameServers does."""
        query = GetKvConfig(namespace, key).to_command()
        return await self._servers.ask_nameserver(query, KvConfig.value_in, ResponseCode.QUERY_NOT_FOUND)

    async def kv_values(self, namespace: str) -> dict[str, str]:
        """Returns all values of a namespace by key. An unknown namespace has none."""
        query = GetKvList(namespace).to_command()
        return await self._servers.ask_nameserver(query, KvTable.table_in, ResponseCode.QUERY_NOT_FOUND)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Stores a value at every NameServer, since they share no data. A failure is raised after all were tried."""
        await self._servers.change_nameservers(PutKvConfig(namespace, key, value).to_command(), f"{namespace} {key}")

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Deletes a value on every NameServer. A missing key is no error."""
        await self._servers.change_nameservers(DeleteKvConfig(namespace, key).to_command(), f"{namespace} {key}")

    async def _changes(self, server: Server, topic: str, settings: Mapping[str, str]) -> dict[str, str]:
        """Returns those attributes in `settings` whose value the topic does not have yet at the server.

        Only these are sent, since a broker may refuse to set an equal value again. Raises `InvalidArgument` for
        attributes at a broker before 5.0, and for `batch` if the topic exists without batches.
        """
        if not settings:
            return {}
        question = GetTopicConfig(self._servers.on_wire(topic)).to_command()
        answer = await self._servers.session.call(server.address, question, timeout=self._servers.timeout)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return dict(settings)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            listed = ", ".join(f"{key}={value}" for key, value in settings.items())
            raise InvalidArgument(
                f"topic {topic} was not made: {server} is older than 5.0, whose topics have no attributes "
                f"({listed}); make a plain topic"
            )
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, GetTopicConfig.CODE, str(server), f"topic {topic}")
        attributes = TopicConfigFound.from_command(answer).config.attributes
        if settings.get(QUEUE_TYPE) == BATCH_QUEUE and not is_batch_topic(attributes):
            raise InvalidArgument(
                f"topic {topic} exists on {server} as a plain topic, and stays one; delete it first, with "
                "its messages, or take another name"
            )
        return dict(settings.items() - attributes.items())
