"""Checks that registrations stay within limits, so that no client can fill the memory.

Apache's NameServer has no limits. The limit of brokers does not apply to a connection's first broker, so that one
client cannot keep others out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyrmq_core.errors import BodyError
from pyrmq_core.servers.nameserver.tables.accepted import check_filter_servers, check_registered_topic
from pyrmq_core.servers.nameserver.tables.state import (
    QUEUES_BYTES,
    TOPIC_BYTES,
    BrokerAddrInfo,
    RouteTables,
)
from pyrmq_core.servers.protocol.register_broker import RegistrationHeader
from pyrmq_core.servers.protocol.registration import RegistrationBody

# The most addresses of a broker name, usually a master and a few slaves. Each change visits all of them.
MAX_ADDRESSES_OF_NAME: Final = 100
# The most clusters of a broker name, usually one, or two if a configuration was copied by mistake.
MAX_CLUSTERS_OF_NAME: Final = 16


def check_body(tables: RouteTables, broker_name: str, body: RegistrationBody) -> None:
    """Raises `BodyError` for an invalid topic or filter server, or if the topics would exceed the limit of memory."""
    check_filter_servers(body.filter_servers or ())
    table = tables.topic_queue_table
    added = 0
    for config in body.topic_configs:
        check_registered_topic(config.topic)
        queues = table.get(config.topic)
        if queues is None:
            added += TOPIC_BYTES + QUEUES_BYTES + len(config.topic)
        elif broker_name not in queues:
            added += QUEUES_BYTES
    for topic, info in body.topic_queue_mapping_infos.items():
        added += max(0, tables.added_by_mapping(broker_name, topic, info))  # a smaller mapping may not be stored
    _check_added(tables, added)


def check_queues(tables: RouteTables, topic: str, broker_names: Iterable[str]) -> None:
    """Raises `BodyError` if a topic with queues at these brokers would exceed the limit of memory."""
    queues = tables.topic_queue_table.get(topic)
    added = QUEUES_BYTES * len(set(broker_names).difference(queues or ()))
    _check_added(tables, added if queues is not None else added + TOPIC_BYTES + len(topic))


def check_room(tables: RouteTables, header: RegistrationHeader, connection: object) -> None:
    """Raises `BodyError` if too many brokers are registered, or this broker name has too many addresses or clusters."""
    key = BrokerAddrInfo(header.cluster_name, header.broker_addr)
    is_new = key not in tables.broker_live_table
    if is_new and tables.connections.get(connection) and len(tables.broker_live_table) >= tables.rules.max_brokers:
        raise BodyError(
            f"registration: {len(tables.broker_live_table)} broker addresses are registered, "
            f"{tables.rules.max_brokers} at most (maxRegisteredBrokers), and this connection has one already"
        )
    broker = tables.broker_addr_table.get(header.broker_name)
    addrs = {} if broker is None else broker.broker_addrs
    if header.broker_id not in addrs and len(addrs) >= MAX_ADDRESSES_OF_NAME:
        raise BodyError(f"registration: broker {header.broker_name} has {len(addrs)} addresses already, its most")
    clusters = tables.clusters.get(header.broker_name, {})
    if header.cluster_name not in clusters and len(clusters) >= MAX_CLUSTERS_OF_NAME:
        raise BodyError(f"registration: broker {header.broker_name} is in {len(clusters)} clusters already, its most")


def _check_added(tables: RouteTables, added: int) -> None:
    if added and tables.topic_bytes + added > tables.rules.max_topic_bytes:
        raise BodyError(
            f"registration: the topics of all brokers take about {tables.topic_bytes} bytes and these {added} more; "
            f"{tables.rules.max_topic_bytes} at most (maxRegisteredTopicBytes). Raise the setting"
        )
