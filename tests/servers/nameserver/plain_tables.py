"""A plain second form of the route tables, as in the sheet: it reads everything again each time, and keeps no index.

`test_tables_model` compares the real ones with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyrmq_core.servers.protocol.register_broker import RegistrationHeader
from pyrmq_core.servers.protocol.registration import RegistrationBody

WRITE = 2


@dataclass
class Broker:
    cluster: str
    addrs: dict[int, str] = field(default_factory=dict)
    acting: bool = False


@dataclass
class PlainTables:
    """Route tables whose queues are lists `[read, write, perm, flag]`."""

    accept_single: bool
    delete_absent: bool
    topics: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    brokers: dict[str, Broker] = field(default_factory=dict)
    clusters: dict[str, set[str]] = field(default_factory=dict)
    live: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    filters: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def register(self, header: RegistrationHeader, body: RegistrationBody, connection: object, now: int) -> Any:
        """Returns `refused`, `ignored`, or (master, HA address) for a slave."""
        cluster, addr, name, broker_id = (
            header.cluster_name,
            header.broker_addr,
            header.broker_name,
            header.broker_id,
        )
        self.clusters.setdefault(cluster, set()).add(name)
        broker = self.brokers.setdefault(name, Broker(cluster))
        broker.acting = header.enable_acting_master is True
        for other in list(broker.addrs):
            if broker.addrs[other] == addr and other != broker_id:
                del broker.addrs[other]
        holder = broker.addrs.get(broker_id)
        rival = None if holder in (None, addr) else self.live.get((cluster, holder))
        if rival is not None and rival["version"].state_version > body.data_version.state_version:
            self.live.pop((cluster, addr), None)
            return "ignored"
        if holder is None and len(body.topic_configs) == 1 and not self.accept_single:
            return "refused"
        broker.addrs[broker_id] = addr
        prime = header.enable_acting_master is not None and broker_id != 0 and broker_id == min(broker.addrs)
        if broker_id == 0 or prime:
            self.take(header, body, first=holder is None, wipes=prime and broker.acting)
        timeout = 120_000 if header.heartbeat_timeout_ms is None else header.heartbeat_timeout_ms
        self.live[cluster, addr] = {
            "at": now,
            "timeout": timeout,
            "version": body.data_version,
            "connection": connection,
            "ha": header.ha_server_addr,
        }
        if body.filter_servers:
            self.filters[cluster, addr] = body.filter_servers
        else:
            self.filters.pop((cluster, addr), None)
        master = broker.addrs.get(0)
        if broker_id != 0 and master is not None and (cluster, master) in self.live:
            return master, self.live[cluster, master]["ha"]
        return None, None

    def take(self, header: RegistrationHeader, body: RegistrationBody, *, first: bool, wipes: bool) -> None:
        name = header.broker_name
        if self.delete_absent:
            for topic in list(self.topics):
                if topic not in {config.topic for config in body.topic_configs}:
                    self.drop(topic, name)
        entry = self.live.get((header.cluster_name, header.broker_addr))
        changed = entry is None or entry["version"] != body.data_version
        for config in body.topic_configs:
            if first or changed or name not in self.topics.get(config.topic, {}):
                perm = config.perm & ~WRITE if wipes else config.perm
                queues = [config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag]
                self.topics.setdefault(config.topic, {})[name] = queues

    def drop(self, topic: str, name: str) -> None:
        self.topics[topic].pop(name, None)
        if not self.topics[topic]:
            del self.topics[topic]

    def remove(self, cluster: str, addr: str, name: str | None) -> None:
        self.live.pop((cluster, addr), None)
        self.filters.pop((cluster, addr), None)
        if name is None or name not in self.brokers:
            return
        broker = self.brokers[name]
        broker.addrs = {i: a for i, a in broker.addrs.items() if a != addr}
        if not broker.addrs:
            del self.brokers[name]
            for cluster_name, names in list(self.clusters.items()):
                names.discard(name)
                if not names:
                    del self.clusters[cluster_name]
            for topic in list(self.topics):
                self.drop(topic, name)
        elif broker.acting and 0 not in broker.addrs:
            for queues in self.topics.values():
                if name in queues:
                    queues[name][2] &= ~WRITE

    def name_of(self, cluster: str, addr: str) -> str | None:
        names = [n for n, b in self.brokers.items() if b.cluster == cluster and addr in b.addrs.values()]
        return names[0] if names else None

    def close(self, connection: object) -> None:
        for (cluster, addr), live in list(self.live.items()):
            if live["connection"] is connection:
                self.remove(cluster, addr, self.name_of(cluster, addr))
                return

    def scan(self, now: int) -> None:
        silent = [key for key, live in self.live.items() if live["at"] + live["timeout"] < now]
        for cluster, addr in silent:
            self.remove(cluster, addr, self.name_of(cluster, addr))

    def set_perms(self, name: str, perm: int | None) -> int:
        """Sets a broker's permissions in each topic; None clears the write bit."""
        mine = [queues[name] for queues in self.topics.values() if name in queues]
        for numbers in mine:
            numbers[2] = numbers[2] & ~WRITE if perm is None else perm
        return len(mine)

    def delete(self, topic: str, cluster: str | None) -> None:
        for name in list(self.topics.get(topic, {})):
            if cluster is None or name in self.clusters.get(cluster, set()):
                self.drop(topic, name)

    def set_topic(self, topic: str, names: list[str]) -> None:
        if topic not in self.topics and not all(name in self.brokers for name in names):
            return
        for name in names:
            if name not in self.brokers:
                return
            self.topics.setdefault(topic, {})[name] = [1, 1, 6, 0]
