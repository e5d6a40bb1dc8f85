"""The route tables themselves, and the small steps that all decisions are made of.

    topic_queue_table     topic -> broker name -> QueueData
    broker_addr_table     broker name -> cluster, addresses by broker id (0 is the master)
    cluster_addr_table    cluster -> broker names
    broker_live_table     (cluster, address) -> last sign of life, version of its topics, connection, HA address
    filter_server_table   (cluster, address) -> addresses of filter servers (a leftover, kept)

Beside them 5.x keeps the queue mappings of static topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from pyrmq_core.nameserver.tables.changes import Change, QueuesRemoved, TopicRemoved
from pyrmq_core.protocol.route import BrokerData, QueueData, TopicRouteData
from pyrmq_core.protocol.topic_config import DataVersion

# A broker that says nothing else is given up after this (RouteInfoManager.DEFAULT_BROKER_CHANNEL_EXPIRED_TIME).
HEARTBEAT_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class TableRules:
    """The settings that decisions depend on.

    5.x refuses a broker whose first registration has a single topic, 4.x takes it
    (`accept_first_registration_of_one_topic`): so a broker that has one topic only is found.
    """

    delete_topic_with_broker_registration: bool = False
    support_acting_master: bool = False
    accept_first_registration_of_one_topic: bool = True


class BrokerAddrInfo(NamedTuple):
    """The key under which a broker lives."""

    cluster: str
    address: str


@dataclass(frozen=True, slots=True)
class BrokerLiveInfo:
    """One living address.

    `digest` stands for the last body that was taken from it, while the tables still hold all it said; `contributed`
    tells whether its topics were taken.
    """

    last_update_ms: int
    heartbeat_timeout_ms: int
    data_version: DataVersion
    connection: object
    ha_server_addr: str | None
    digest: bytes | None = None
    contributed: bool = False

    def is_expired(self, now_ms: int) -> bool:
        return self.last_update_ms + self.heartbeat_timeout_ms < now_ms


class RouteTables:
    """All a NameServer knows of brokers; times are milliseconds of one clock that never goes back."""

    def __init__(self, rules: TableRules | None = None) -> None:
        self._rules = rules or TableRules()
        self.topic_queue_table: dict[str, dict[str, QueueData]] = {}
        self.broker_addr_table: dict[str, BrokerData] = {}
        self.cluster_addr_table: dict[str, dict[str, None]] = {}  # the inner one is a set that keeps its order
        self.broker_live_table: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        self.filter_server_table: dict[BrokerAddrInfo, tuple[str, ...]] = {}
        self.topic_queue_mapping_info_table: dict[str, dict[str, Mapping[str, Any]]] = {}
        # Routes as they were last asked for; a step that changes one takes it out.
        self.routes: dict[str, TopicRouteData] = {}

    @property
    def rules(self) -> TableRules:
        return self._rules

    @rules.setter
    def rules(self, rules: TableRules) -> None:
        self._rules = rules
        self.routes.clear()
        self.forget_digests(self.broker_addr_table)

    def put_broker(self, broker: BrokerData) -> None:
        if self.broker_addr_table.get(broker.broker_name) != broker:
            self.broker_addr_table[broker.broker_name] = broker
            self.routes.clear()

    def put_queue_data(self, topic: str, queue_data: QueueData) -> None:
        queues = self.topic_queue_table.get(topic)
        if queues is None:
            queues = self.topic_queue_table[topic] = {}
        queues[queue_data.broker_name] = queue_data
        self.routes.pop(topic, None)

    def put_filter_servers(self, key: BrokerAddrInfo, filter_servers: tuple[str, ...]) -> None:
        """An empty list removes its entry."""
        if filter_servers != self.filter_server_table.get(key, ()):
            if filter_servers:
                self.filter_server_table[key] = filter_servers
            else:
                del self.filter_server_table[key]
            self.routes.clear()

    def put_mappings(self, broker_name: str, infos: Mapping[str, Mapping[str, Any]]) -> None:
        for topic, info in infos.items():
            by_broker = self.topic_queue_mapping_info_table.setdefault(topic, {})
            by_broker[str(info.get("bname", broker_name))] = info
            self.routes.pop(topic, None)

    def drop_queues(self, topic: str, broker_names: Iterable[str]) -> list[Change]:
        """Takes brokers out of a topic, and the topic away with the last one."""
        queues = self.topic_queue_table[topic]
        changes: list[Change] = [QueuesRemoved(topic, name) for name in broker_names if queues.pop(name, None)]
        if changes:
            self.routes.pop(topic, None)
        if not queues:
            del self.topic_queue_table[topic]
            self.topic_queue_mapping_info_table.pop(topic, None)
            changes.append(TopicRemoved(topic))
        return changes

    def drop_brokers(self, broker_names: Sequence[str]) -> list[str]:
        """Takes brokers out of all topics; the topics that go with them."""
        gone = []
        for topic, queues in self.topic_queue_table.items():
            for name in broker_names:
                if queues.pop(name, None) is not None:
                    self.routes.pop(topic, None)
            if not queues:
                gone.append(topic)
        for topic in gone:
            del self.topic_queue_table[topic]
            self.topic_queue_mapping_info_table.pop(topic, None)
        return gone

    def set_perms(self, broker_name: str, new_perm: Callable[[int], int]) -> tuple[int, int]:
        """Gives all topics of a broker another permission; how many topics it has, and how many changed."""
        topics = changed = 0
        for topic, queues in self.topic_queue_table.items():
            queue_data = queues.get(broker_name)
            if queue_data is not None:
                topics += 1
                perm = new_perm(queue_data.perm)
                if perm != queue_data.perm:
                    changed += 1
                    queues[broker_name] = replace(queue_data, perm=perm)
                    self.routes.pop(topic, None)
        return topics, changed

    def forget_digests(self, broker_names: Iterable[str]) -> None:
        """The next registration of these brokers is read again: the tables are not what the last one made them."""
        brokers = [self.broker_addr_table[name] for name in broker_names if name in self.broker_addr_table]
        addresses = {address for broker in brokers for address in broker.broker_addrs.values()}
        for key, live in self.broker_live_table.items():
            if key.address in addresses:
                self.broker_live_table[key] = replace(live, digest=None)
