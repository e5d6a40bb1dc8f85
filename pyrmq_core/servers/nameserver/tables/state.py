"""`RouteTables`: the route tables of a NameServer, and the basic changes to them.

    topic_queue_table     topic -> broker name -> QueueData
    broker_addr_table     broker name -> cluster, addresses by broker id (0 is the master)
    cluster_addr_table    cluster -> broker names
    broker_live_table     (cluster, address) -> last sign of life, version of its topics, connection, HA address
    filter_server_table   (cluster, address) -> addresses of filter servers (of old brokers only)

As in 5.x, a further table has the queue mappings of static topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, NamedTuple

from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.routes.route import BrokerData, QueueData, TopicRouteData
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.nameserver.tables.changes import Change, QueuesRemoved, TopicRemoved

# The time after which a silent broker is removed if it sets no time-out (DEFAULT_BROKER_CHANNEL_EXPIRED_TIME).
HEARTBEAT_TIMEOUT_MS: Final = 120_000
MAX_ROUTES: Final = 20_000
# The approximate memory of a topic without its name, and of its entry for one broker (Python 3.11).
TOPIC_BYTES: Final = 400
QUEUES_BYTES: Final = 200
# The approximate memory of a static topic's mapping, as a multiple of its JSON.
MAPPING_SWELL: Final = 4


@dataclass(frozen=True, slots=True)
class TableRules:
    """The settings that decisions about the route tables depend on.

    5.x refuses a broker whose first registration has a single topic. 4.x accepts it, as does this NameServer with
    `accept_first_registration_of_one_topic`, since a broker may have only one topic.
    """

    delete_topic_with_broker_registration: bool = False
    support_acting_master: bool = False
    accept_first_registration_of_one_topic: bool = True
    max_brokers: int = 10_000
    max_topic_bytes: int = 1 << 30


class BrokerAddrInfo(NamedTuple):
    """The key of a broker's address in `broker_live_table`."""

    cluster: str
    address: str


@dataclass(frozen=True, slots=True)
class BrokerLiveInfo:
    """The state of a living broker's address, such as the time of its last registration or heartbeat.

    `digest` is the digest of its last registration's body, or None if that body must be decoded again. `contributed` is
    True if its topics entered the tables. Entries are numbered in the order of their addition.
    """

    last_update_ms: int
    heartbeat_timeout_ms: int
    data_version: DataVersion
    connection: object
    ha_server_addr: str | None
    digest: bytes | None = None
    contributed: bool = False
    number: int = 0

    def is_expired(self, now_ms: int) -> bool:
        return self.last_update_ms + self.heartbeat_timeout_ms < now_ms


class Switched(NamedTuple):
    """The result of a wipe or restoration of a broker's write permission: its number of topics, and of changed ones."""

    topics: int
    changed: int


class RouteTables:
    """The route tables of a NameServer. Times are milliseconds of a monotonic clock.

    Indexes find an entry without a search through the tables: `connections` (connection -> keys of its living brokers),
    `names` (key -> broker names that have the address) and `clusters` (broker name -> clusters).
    """

    def __init__(self, rules: TableRules | None = None) -> None:
        self._rules = rules or TableRules()
        self.topic_queue_table: dict[str, dict[str, QueueData]] = {}
        self.broker_addr_table: dict[str, BrokerData] = {}
        self.cluster_addr_table: dict[str, dict[str, None]] = {}  # the inner dict is a set that keeps its order
        self.broker_live_table: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        self.filter_server_table: dict[BrokerAddrInfo, tuple[str, ...]] = {}
        self.topic_queue_mapping_info_table: dict[str, dict[str, Mapping[str, Any]]] = {}
        # A cache of queried routes. A change to a route removes it.
        self.routes: dict[str, TopicRouteData] = {}
        self.connections: dict[object, set[BrokerAddrInfo]] = {}
        self.names: dict[BrokerAddrInfo, dict[str, None]] = {}
        self.clusters: dict[str, dict[str, None]] = {}
        self.topic_bytes = 0
        self._numbers = count()
        self._name_numbers: dict[str, int] = {}

    @property
    def rules(self) -> TableRules:
        return self._rules

    @rules.setter
    def rules(self, rules: TableRules) -> None:
        if rules != self._rules:
            self._rules = rules
            self.routes.clear()
            self.forget_digests(self.broker_addr_table)

    def put_broker(self, broker: BrokerData) -> None:
        before = self.broker_addr_table.get(broker.broker_name)
        if before == broker:
            return
        if before is None:
            self._name_numbers[broker.broker_name] = next(self._numbers)
        else:
            self._forget_addresses(before)
        for address in broker.broker_addrs.values():
            self.names.setdefault(BrokerAddrInfo(broker.cluster, address), {})[broker.broker_name] = None
        self.broker_addr_table[broker.broker_name] = broker
        self.routes.clear()

    def drop_broker(self, broker_name: str) -> list[str]:
        """Removes a broker name and its addresses, but not its queues. Returns the clusters left without brokers."""
        self._forget_addresses(self.broker_addr_table.pop(broker_name))
        del self._name_numbers[broker_name]
        emptied = []
        for cluster in self.clusters.pop(broker_name, ()):
            del self.cluster_addr_table[cluster][broker_name]
            if not self.cluster_addr_table[cluster]:
                del self.cluster_addr_table[cluster]
                emptied.append(cluster)
        self.routes.clear()
        return emptied

    def name_of(self, key: BrokerAddrInfo) -> str | None:
        """Returns the broker name with this address. Of several names it is the first registered."""
        return min(self.names.get(key, ()), key=self._name_numbers.__getitem__, default=None)

    def join_cluster(self, cluster: str, broker_name: str) -> None:
        self.cluster_addr_table.setdefault(cluster, {})[broker_name] = None
        self.clusters.setdefault(broker_name, {})[cluster] = None

    def put_live(self, key: BrokerAddrInfo, live: BrokerLiveInfo) -> bool:
        """Stores the state of a living broker's address. Returns True if it was not alive before."""
        before = self.broker_live_table.get(key)
        if before is not None and before.connection is not live.connection:
            self._forget_connection(key, before)
        number = next(self._numbers) if before is None else before.number
        self.broker_live_table[key] = replace(live, number=number)
        self.connections.setdefault(live.connection, set()).add(key)
        return before is None

    def drop_live(self, key: BrokerAddrInfo) -> bool:
        live = self.broker_live_table.pop(key, None)
        if live is not None:
            self._forget_connection(key, live)
        return live is not None

    def put_queue_data(self, topic: str, queue_data: QueueData) -> None:
        queues = self.topic_queue_table.get(topic)
        if queues is None:
            queues = self.topic_queue_table[topic] = {}
            self.topic_bytes += TOPIC_BYTES + len(topic)
        if queue_data.broker_name not in queues:
            self.topic_bytes += QUEUES_BYTES
        queues[queue_data.broker_name] = queue_data
        self.routes.pop(topic, None)

    def put_filter_servers(self, key: BrokerAddrInfo, filter_servers: tuple[str, ...]) -> None:
        """Sets the filter servers of an address. An empty list removes the entry."""
        if filter_servers != self.filter_server_table.get(key, ()):
            if filter_servers:
                self.filter_server_table[key] = filter_servers
            else:
                del self.filter_server_table[key]
            self.routes.clear()

    def put_mappings(self, broker_name: str, infos: Mapping[str, Mapping[str, Any]]) -> None:
        """Stores a broker's queue mappings of static topics (5.x), by topic. Skips topics without a route."""
        for topic, info in infos.items():
            if topic in self.topic_queue_table:
                self.topic_bytes += self.added_by_mapping(broker_name, topic, info)
                by_broker = self.topic_queue_mapping_info_table.setdefault(topic, {})
                by_broker[_mapped_broker(broker_name, info)] = info
                self.routes.pop(topic, None)

    def added_by_mapping(self, broker_name: str, topic: str, info: Mapping[str, Any]) -> int:
        """Returns the memory that a static topic's queue mapping takes beyond the stored one that it replaces."""
        stored = self.topic_queue_mapping_info_table.get(topic, {}).get(_mapped_broker(broker_name, info))
        return _mapping_bytes(info) - _mapping_bytes(stored)

    def drop_queues(self, topic: str, broker_names: Iterable[str]) -> list[Change]:
        """Removes a topic's queues at these brokers, and the topic if no queues are left."""
        queues = self.topic_queue_table[topic]
        changes: list[Change] = [QueuesRemoved(topic, name) for name in broker_names if queues.pop(name, None)]
        if changes:
            self.topic_bytes -= QUEUES_BYTES * len(changes)
            self.routes.pop(topic, None)
        if not queues:
            self._forget_topic(topic)
            changes.append(TopicRemoved(topic))
        return changes

    def drop_brokers(self, broker_names: Set[str]) -> list[str]:
        """Removes the queues of these brokers from all topics. Returns the topics that lost their last queues."""
        gone = []
        for topic, queues in tuple(self.topic_queue_table.items()):
            if not queues.keys().isdisjoint(broker_names):
                for name in queues.keys() & broker_names:
                    del queues[name]
                    self.topic_bytes -= QUEUES_BYTES
                self.routes.pop(topic, None)
            if not queues:
                self._forget_topic(topic)
                gone.append(topic)
        return gone

    def set_perms(self, broker_names: Set[str], new_perm: Callable[[int], int]) -> dict[str, Switched]:
        """Replaces the permission bits of each of these brokers' topics by the result of `new_perm` for the old bits.

        Returns for each broker how many topics it has, and of how many the permission changed.
        """
        switched = dict.fromkeys(broker_names, Switched(0, 0))
        values: dict[QueueData, QueueData] = {}  # topics with equal settings share one object
        for topic, queues in self.topic_queue_table.items():
            if queues.keys().isdisjoint(broker_names):
                continue
            for name in queues.keys() & broker_names:
                old = queues[name]
                new = values.get(old)
                if new is None:
                    new = values[old] = replace(old, perm=new_perm(old.perm))
                topics, changed = switched[name]
                switched[name] = Switched(topics + 1, changed + (new.perm != old.perm))
                queues[name] = new
            self.routes.pop(topic, None)
        return switched

    def forget_digests(self, broker_names: Iterable[str]) -> None:
        """Drops the digests of these brokers' last registrations, so that the next are decoded, even if unchanged."""
        brokers = [self.broker_addr_table[name] for name in broker_names if name in self.broker_addr_table]
        addresses = {address for broker in brokers for address in broker.broker_addrs.values()}
        for key, live in self.broker_live_table.items():
            if live.digest is not None and key.address in addresses:
                self.broker_live_table[key] = replace(live, digest=None)

    def _forget_topic(self, topic: str) -> None:
        del self.topic_queue_table[topic]
        self.topic_bytes -= TOPIC_BYTES + len(topic)
        for info in self.topic_queue_mapping_info_table.pop(topic, {}).values():
            self.topic_bytes -= _mapping_bytes(info)
        self.routes.pop(topic, None)

    def _forget_addresses(self, broker: BrokerData) -> None:
        for address in broker.broker_addrs.values():
            key = BrokerAddrInfo(broker.cluster, address)
            names = self.names.get(key, {})
            names.pop(broker.broker_name, None)
            if not names:
                self.names.pop(key, None)

    def _forget_connection(self, key: BrokerAddrInfo, live: BrokerLiveInfo) -> None:
        keys = self.connections[live.connection]
        keys.discard(key)
        if not keys:
            del self.connections[live.connection]


def _mapped_broker(broker_name: str, info: Mapping[str, Any]) -> str:
    return str(info.get("bname", broker_name))


def _mapping_bytes(info: Mapping[str, Any] | None) -> int:
    return 0 if info is None else MAPPING_SWELL * len(dumps(info))
