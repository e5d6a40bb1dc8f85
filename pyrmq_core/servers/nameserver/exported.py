"""The NameServer's metrics for Prometheus.

RocketMQ's NameServer has none (5.4.0). The name `rocketmq_rpc_latency` comes from RocketMQ's brokers. The other names
exist only here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import Final

from pyrmq_core.servers.exporter.families import Family, Kind, Sample
from pyrmq_core.servers.exporter.rpc_latency import RpcLatency
from pyrmq_core.servers.exporter.series import Counts
from pyrmq_core.servers.nameserver.service import NameServer, now_ms
from pyrmq_core.servers.nameserver.tables.changes import RemovalReason
from pyrmq_core.servers.nameserver.tables.state import BrokerAddrInfo

# The most broker addresses that have a sample. Of more addresses, those that were silent longest have one.
MOST_ADDRESSES: Final = 1_000
BY_ADDRESS: Final = ("cluster", "broker_name", "broker_id", "address")


class NameServerMetrics:
    """The metrics of one NameServer. `connections` returns the number of its connections."""

    def __init__(self, server: NameServer, latency: RpcLatency, connections: Callable[[], int]) -> None:
        self._server = server
        self._latency = latency
        self._connections = connections

    def families(self) -> Iterator[Family]:
        tables = self._server.tables
        for name, text, value in (
            ("rocketmq_nameserver_connections", "Connections that are open.", self._connections()),
            ("rocketmq_nameserver_cluster_number", "Clusters with a broker.", len(tables.cluster_addr_table)),
            ("rocketmq_nameserver_topic_number", "Topics that have a route.", len(tables.topic_queue_table)),
            ("rocketmq_nameserver_topic_size_bytes", "Estimated memory of topics and queues.", tables.topic_bytes),
            ("rocketmq_nameserver_live_broker_number", "Broker addresses alive.", len(tables.broker_live_table)),
        ):
            yield Family(name, Kind.GAUGE, text, (), [Sample((), value)])
        yield self._brokers()
        yield self._silence()
        yield self._removed()
        yield self._latency.family()

    def _brokers(self) -> Family:
        counts = Counts(max_series=MOST_ADDRESSES)
        for cluster, names in self._server.tables.cluster_addr_table.items():
            counts.add((cluster,), len(names))
        return Family(
            "rocketmq_nameserver_broker_number",
            Kind.GAUGE,
            "Broker names that are registered.",
            ("cluster",),
            counts.samples(),
        )

    def _silence(self) -> Family:
        longest = nsmallest(
            MOST_ADDRESSES, self._server.tables.broker_live_table.items(), key=lambda item: item[1].last_update_ms
        )
        now = now_ms()
        samples = (Sample(self._labels(key), max(0, now - live.last_update_ms)) for key, live in longest)
        return Family(
            "rocketmq_nameserver_broker_heartbeat_age_milliseconds",
            Kind.GAUGE,
            "Time since a broker's last registration or heartbeat.",
            BY_ADDRESS,
            samples,
        )

    def _labels(self, key: BrokerAddrInfo) -> tuple[str, ...]:
        name = self._server.tables.name_of(key)
        broker = None if name is None else self._server.tables.broker_addr_table.get(name)
        ids = () if broker is None else (i for i, address in broker.broker_addrs.items() if address == key.address)
        return key.cluster, name or "", str(next(iter(ids), "")), key.address

    def _removed(self) -> Family:
        removed: Counter[RemovalReason] = self._server.removed
        samples = [Sample((reason.name.lower(),), removed[reason]) for reason in RemovalReason]
        return Family(
            "rocketmq_nameserver_broker_removed_total",
            Kind.COUNTER,
            "Broker addresses that left, by reason.",
            ("reason",),
            samples,
        )
