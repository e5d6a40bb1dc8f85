"""The route tables against the plain ones: both agree after any steps of brokers, clients and time.

Registrations come through the digest, as long ones do, or without it: reading a body again must never matter.
"""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.routes.route import QueueData
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.nameserver.tables import BrokerAddrInfo, RouteTables, TableRules, registration, removal
from pyrmq_core.servers.nameserver.tables import admin_changes as outside
from pyrmq_core.servers.nameserver.tables import queries as lookups
from pyrmq_core.servers.nameserver.tables.changes import TopicRemoved, TopicsRemoved
from pyrmq_core.servers.nameserver.tables.state import QUEUES_BYTES, TOPIC_BYTES
from pyrmq_core.servers.protocol.register_broker import RegistrationHeader
from pyrmq_core.servers.protocol.registration import RegistrationBody
from tests.servers.nameserver.plain_tables import PlainTables

CLUSTERS = st.sampled_from(["C", "D"])
ADDRESSES = st.sampled_from([f"10.0.0.{i}:1" for i in range(4)])
NAMES = st.sampled_from(["a", "b"])
TOPICS = st.sampled_from(["T", "U", "V"])
CONNECTIONS = st.sampled_from([object() for _ in range(3)])
HEADERS = st.builds(
    RegistrationHeader,
    CLUSTERS,
    ADDRESSES,
    NAMES,
    st.integers(0, 2),
    st.sampled_from([None, "ha:1", "ha:2"]),
    heartbeat_timeout_ms=st.sampled_from([None, 3_000]),
    enable_acting_master=st.sampled_from([None, False, True]),
)
CONFIGS = st.builds(
    TopicConfig,
    TOPICS,
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from([6, 7, 4]),
    topic_sys_flag=st.integers(0, 3),
)
BODIES = st.builds(
    RegistrationBody,
    st.builds(DataVersion, st.just(0), st.integers(0, 1), st.integers(0, 1)),
    st.lists(CONFIGS, max_size=3, unique_by=lambda config: config.topic).map(tuple),
    st.sampled_from([(), ("f:1",)]),
)


class Comparison(RuleBasedStateMachine):
    """One history, applied to both tables."""

    @initialize(accept_single=st.booleans(), delete_absent=st.booleans())
    def begin(self, accept_single: bool, delete_absent: bool) -> None:
        self.now = 1_000
        self.real = RouteTables(
            TableRules(
                accept_first_registration_of_one_topic=accept_single,
                delete_topic_with_broker_registration=delete_absent,
            )
        )
        self.plain = PlainTables(accept_single, delete_absent)
        self.last: dict[tuple[str, str], tuple[RegistrationHeader, RegistrationBody]] = {}

    @rule(header=HEADERS, body=BODIES, connection=CONNECTIONS, digested=st.sampled_from([True, True, True, False]))
    def register(self, header: RegistrationHeader, body: RegistrationBody, connection: object, digested: bool) -> None:
        self.last[header.cluster_name, header.broker_addr] = header, body
        digest = hashlib.sha256(repr(body).encode()).digest() if digested else None
        read = not (digest and registration.knows(self.real, header, digest))
        done = registration.register(
            self.real, header, body if read else None, connection=connection, now_ms=self.now, digest=digest
        )
        plain = self.plain.register(header, body, connection, self.now)
        assert done.accepted == (plain != "refused")
        assert (done.master_addr, done.ha_server_addr) == ((None, None) if isinstance(plain, str) else plain)

    @rule(connection=CONNECTIONS)
    def all_register_again(self, connection: object) -> None:
        """Repeats every registration, as brokers do every 30 s."""
        for header, body in list(self.last.values()):
            self.register(header, body, connection, True)

    @rule(header=HEADERS)
    def unregister(self, header: RegistrationHeader) -> None:
        key = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        self.checked(removal.unregister(self.real, key, header.broker_name, header.broker_id).changes)
        self.plain.remove(header.cluster_name, header.broker_addr, header.broker_name)

    @rule(connection=CONNECTIONS)
    def close(self, connection: object) -> None:
        self.checked(removal.connection_closed(self.real, connection).changes)
        self.plain.close(connection)

    @rule(ms=st.sampled_from([1, 2_999, 3_000, 3_001, 119_000, 120_000]))
    def wait_and_scan(self, ms: int) -> None:
        self.now += ms
        removed = removal.scan(self.real, self.now)
        self.checked(removed.changes)
        self.plain.scan(self.now)

    @rule(cluster=CLUSTERS, address=ADDRESSES)
    def heartbeat(self, cluster: str, address: str) -> None:
        is_known = registration.heartbeat(self.real, BrokerAddrInfo(cluster, address), self.now)
        assert is_known == ((cluster, address) in self.plain.live)
        if is_known:
            self.plain.live[cluster, address]["at"] = self.now

    @rule(name=NAMES)
    def wipe(self, name: str) -> None:
        assert outside.wipe_write_perm(self.real, name).topics == self.plain.set_perms(name, None)

    @rule(name=NAMES)
    def add(self, name: str) -> None:
        assert outside.add_write_perm(self.real, name).topics == self.plain.set_perms(name, 6)

    @rule(topic=TOPICS, cluster=st.none() | CLUSTERS)
    def delete(self, topic: str, cluster: str | None) -> None:
        self.checked(outside.delete_topic(self.real, topic, cluster))
        self.plain.delete(topic, cluster)

    @rule(topic=TOPICS, names=st.lists(NAMES, max_size=2))
    def set_topic(self, topic: str, names: list[str]) -> None:
        outside.set_topic(self.real, topic, [QueueData(name, 1, 1, 6) for name in names])
        self.plain.set_topic(topic, names)

    def checked(self, changes: Any) -> None:
        """Checks that a topic reported as removed is gone."""
        gone = [change.topic for change in changes if isinstance(change, TopicRemoved)]
        gone += [topic for change in changes if isinstance(change, TopicsRemoved) for topic in change.topics]
        assert len(gone) == len(set(gone))
        assert not any(topic in self.real.topic_queue_table for topic in gone)

    @invariant()
    def both_tell_the_same(self) -> None:
        real, plain = self.real, self.plain
        assert {
            topic: {
                name: [q.read_queue_nums, q.write_queue_nums, q.perm, q.topic_sys_flag] for name, q in queues.items()
            }
            for topic, queues in real.topic_queue_table.items()
        } == plain.topics
        brokers = {
            name: (b.cluster, dict(b.broker_addrs), b.enable_acting_master)
            for name, b in real.broker_addr_table.items()
        }
        assert brokers == {name: (b.cluster, b.addrs, b.acting) for name, b in plain.brokers.items()}
        assert {cluster: set(names) for cluster, names in real.cluster_addr_table.items()} == plain.clusters
        assert {
            tuple(key): (live.last_update_ms, live.data_version, live.connection, live.ha_server_addr)
            for key, live in real.broker_live_table.items()
        } == {key: (live["at"], live["version"], live["connection"], live["ha"]) for key, live in plain.live.items()}
        assert {tuple(key): servers for key, servers in real.filter_server_table.items()} == plain.filters

    @invariant()
    def what_finds_entries_and_counts_them_agrees_with_the_tables(self) -> None:
        real = self.real
        assert {(connection, key) for connection, keys in real.connections.items() for key in keys} == {
            (live.connection, key) for key, live in real.broker_live_table.items()
        }
        assert {(key, name) for key, names in real.names.items() for name in names} == {
            (BrokerAddrInfo(broker.cluster, address), broker.broker_name)
            for broker in real.broker_addr_table.values()
            for address in broker.broker_addrs.values()
        }
        assert {(cluster, name) for name, clusters in real.clusters.items() for cluster in clusters} == {
            (cluster, name) for cluster, names in real.cluster_addr_table.items() for name in names
        }
        assert all(real.connections.values())
        assert real.topic_bytes == sum(
            TOPIC_BYTES + len(topic) + QUEUES_BYTES * len(queues) for topic, queues in real.topic_queue_table.items()
        )

    @invariant()
    def routes_are_those_of_the_tables(self) -> None:
        """Checks that a cached route equals a fresh one."""
        for topic in ("T", "U", "V"):
            route = lookups.route(self.real, topic)
            queues = self.plain.topics.get(topic, {})
            assert (route is None) == (not queues)
            if route is not None:
                assert {q.broker_name: q.perm for q in route.queue_datas} == {n: q[2] for n, q in queues.items()}
                assert {b.broker_name: dict(b.broker_addrs) for b in route.broker_datas} == {
                    name: self.plain.brokers[name].addrs for name in queues
                }
                keys = {
                    (self.plain.brokers[n].cluster, a) for n in queues for a in self.plain.brokers[n].addrs.values()
                }
                filters = {addr: list(f) for (c, addr), f in self.plain.filters.items() if (c, addr) in keys}
                assert route.filter_server_table == filters


Comparison.TestCase.settings = settings(
    max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestComparison = Comparison.TestCase
