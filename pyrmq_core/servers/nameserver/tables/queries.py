"""Queries of the route tables: a topic's route, the brokers, lists of topics.

Source: RouteInfoManager.pickupTopicRouteData, getAllClusterInfo, getBrokerMemberGroup and the topic lists, 5.3.3, and
namesrv/route/ZoneRouteRPCHook.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from pyrmq_core.model import Permission
from pyrmq_core.protocol.messages.names import MEMBER_GROUP_PREFIX
from pyrmq_core.protocol.requests.nameserver.cluster_info import BrokerMemberGroup, ClusterInfo
from pyrmq_core.protocol.requests.nameserver.topic_lists import TopicList
from pyrmq_core.protocol.routes.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from pyrmq_core.servers.nameserver.tables.state import MAX_ROUTES, BrokerAddrInfo, RouteTables

# The bits of a topic's sysFlag (common/sysflag/TopicSysFlag.java).
UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2


def route(tables: RouteTables, topic: str) -> TopicRouteData | None:
    """Returns the topic's route, or None if no broker has it. Returns the same object again until the route changes."""
    kept_route = tables.routes.get(topic)
    if kept_route is not None:
        return kept_route
    queues = tables.topic_queue_table.get(topic)
    if not queues:
        return None
    brokers = [tables.broker_addr_table[name] for name in queues if name in tables.broker_addr_table]
    if not brokers:
        return None
    if len(brokers) < len(queues):  # the queues of an unregistered broker are left out
        queues = {broker.broker_name: queues[broker.broker_name] for broker in brokers}
    if len(tables.routes) >= MAX_ROUTES:
        tables.routes.clear()
    if tables.rules.support_acting_master and not topic.startswith(MEMBER_GROUP_PREFIX):
        brokers = [_with_acting_master(broker, queues[broker.broker_name]) for broker in brokers]
    new_route = tables.routes[topic] = TopicRouteData(
        queue_datas=tuple(queues.values()),
        broker_datas=tuple(brokers),
        filter_server_table=_filter_servers(tables, brokers),
        topic_queue_mapping_by_broker=tables.topic_queue_mapping_info_table.get(topic),
    )
    return new_route


def route_in_zone(route_data: TopicRouteData, zone_name: str) -> TopicRouteData:
    """Returns the route without the brokers of other zones.

    A broker without a master is never removed. Zone names are compared case-insensitively.
    """
    far = [
        broker
        for broker in route_data.broker_datas
        if broker.master is not None and (broker.zone_name or "").lower() != zone_name.lower()
    ]
    far_names = {broker.broker_name for broker in far}
    far_addresses = {address for broker in far for address in broker.broker_addrs.values()}
    return replace(
        route_data,
        broker_datas=tuple(broker for broker in route_data.broker_datas if broker.broker_name not in far_names),
        queue_datas=tuple(queue for queue in route_data.queue_datas if queue.broker_name not in far_names),
        filter_server_table={
            address: servers
            for address, servers in route_data.filter_server_table.items()
            if address not in far_addresses
        },
    )


def cluster_info(tables: RouteTables) -> ClusterInfo:
    return ClusterInfo(
        broker_addr_table=dict(tables.broker_addr_table),
        cluster_addr_table={cluster: tuple(names) for cluster, names in tables.cluster_addr_table.items()},
    )


def broker_member_group(tables: RouteTables, cluster: str, broker_name: str) -> BrokerMemberGroup:
    broker = tables.broker_addr_table.get(broker_name)
    return BrokerMemberGroup(cluster, broker_name, {} if broker is None else broker.broker_addrs)


def all_topics(tables: RouteTables) -> list[str]:
    return _topics(tables, lambda _: True)


def topics_of_cluster(tables: RouteTables, cluster: str | None) -> list[str]:
    names = tables.cluster_addr_table.get(cluster or "", {}).keys()
    return _topics(tables, lambda queues: not names.isdisjoint(queues.keys()))


def system_topics(tables: RouteTables) -> TopicList:
    """Returns the names of all clusters and brokers, which are also topics, and the address of one broker."""
    names = dict.fromkeys(
        name for cluster, brokers in tables.cluster_addr_table.items() for name in (cluster, *brokers)
    )
    addresses = (address for broker in tables.broker_addr_table.values() for address in broker.broker_addrs.values())
    return TopicList(tuple(names), next(addresses, None))


def unit_topics(tables: RouteTables) -> list[str]:
    return _topics(tables, lambda queues: bool(_flag(queues) & UNIT_FLAG))


def unit_sub_topics(tables: RouteTables) -> list[str]:
    return _topics(tables, lambda queues: bool(_flag(queues) & UNIT_SUB_FLAG))


def unit_sub_ununit_topics(tables: RouteTables) -> list[str]:
    return _topics(tables, lambda queues: _flag(queues) & (UNIT_SUB_FLAG | UNIT_FLAG) == UNIT_SUB_FLAG)


def _topics(tables: RouteTables, includes: Callable[[Mapping[str, QueueData]], bool]) -> list[str]:
    return [topic for topic, queues in tables.topic_queue_table.items() if includes(queues)]


def _flag(queues: Mapping[str, QueueData]) -> int:
    return next(iter(queues.values())).topic_sys_flag


def _with_acting_master(broker: BrokerData, queue_data: QueueData) -> BrokerData:
    """Returns a broker in whose addresses the slave that acts as master has the master's id, or `broker` unchanged.

    The slave with the smallest id acts if the broker enables that and has no master, and the queues are read-only.
    """
    addrs = broker.broker_addrs
    if not addrs or MASTER_ID in addrs or not broker.enable_acting_master or queue_data.perm & Permission.WRITE:
        return broker
    smallest = min(addrs)
    others = {broker_id: address for broker_id, address in addrs.items() if broker_id != smallest}
    return replace(broker, broker_addrs={MASTER_ID: addrs[smallest], **others})


def _filter_servers(tables: RouteTables, brokers: Iterable[BrokerData]) -> Mapping[str, list[str]]:
    if not tables.filter_server_table:
        return {}
    keys = [BrokerAddrInfo(broker.cluster, address) for broker in brokers for address in broker.broker_addrs.values()]
    return {key.address: list(tables.filter_server_table[key]) for key in keys if key in tables.filter_server_table}
