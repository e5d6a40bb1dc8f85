"""The life of brokers and changes by others, one rule a test; mixtures are in `test_tables_model`."""

from __future__ import annotations

from typing import Any

from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.routes.route import QueueData
from pyrmq_core.servers.nameserver.tables import BrokerAddrInfo, RouteTables, TableRules, registration, removal
from pyrmq_core.servers.nameserver.tables import admin_changes as outside
from pyrmq_core.servers.nameserver.tables import queries as lookups
from pyrmq_core.servers.nameserver.tables.changes import (
    BrokerNameRemoved,
    BrokerRemoved,
    ClusterRemoved,
    MinBrokerIdChange,
    QueuesRemoved,
    RemovalReason,
    TopicRemoved,
    TopicSet,
    TopicsRemoved,
    WriteSwitched,
)
from tests.servers.nameserver import desk
from tests.servers.nameserver.table_steps import CONNECTION, KEY_A, OTHER, SLAVE, A, B, kinds, perms, register


def test_silence_is_strict_and_a_time_out_of_the_brokers_own_is_honoured() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"], at=1_000)
    register(tables, "broker-b", B, topics=["T", "U"], at=1_000, over=OTHER, heartbeat_timeout_ms=3_000)
    assert removal.scan(tables, 4_000).changes == ()
    young = removal.scan(tables, 4_001)
    assert young.connections == (OTHER,)
    assert BrokerRemoved("broker-b", 0, B, "DefaultCluster", RemovalReason.SILENT) in young.changes
    assert removal.scan(tables, 121_000).changes == ()
    assert removal.scan(tables, 121_001).connections == (CONNECTION,)
    assert not tables.topic_queue_table


def test_a_sign_of_life_puts_the_end_off() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    assert registration.heartbeat(tables, KEY_A, 100_000)
    assert not registration.heartbeat(tables, BrokerAddrInfo("X", A), 100_000)
    assert removal.scan(tables, 220_000).changes == ()
    assert removal.scan(tables, 220_001).changes != ()


def test_all_that_goes_with_the_last_address() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    register(tables, "broker-b", B, topics=["U"], over=OTHER, cluster="Other")
    gone = removal.connection_closed(tables, CONNECTION)
    assert gone.changes == (
        BrokerRemoved("broker-a", 0, A, "DefaultCluster", RemovalReason.CONNECTION_CLOSED),
        BrokerNameRemoved("broker-a"),
        ClusterRemoved("DefaultCluster"),
        TopicsRemoved(("T",)),
    )
    assert list(tables.topic_queue_table) == ["U"]
    assert perms(tables, "U") == {"broker-b": 6}
    assert removal.connection_closed(tables, CONNECTION).changes == ()


def test_permissions_stay_when_a_master_goes() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    register(tables, address=SLAVE, broker_id=1, topics=["T", "U"], over=OTHER)
    gone = removal.connection_closed(tables, CONNECTION)
    assert kinds(list(gone.changes)) == [BrokerRemoved]
    assert perms(tables, "T") == {"broker-a": 6}
    route = lookups.route(tables, "T")
    assert route is not None
    assert dict(route.broker_datas[0].broker_addrs) == {1: SLAVE}


def test_permissions_lose_writing_when_a_slave_may_act() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"], enable_acting_master=True)
    register(tables, address=SLAVE, broker_id=1, topics=["T", "U"], over=OTHER, enable_acting_master=True)
    gone = removal.connection_closed(tables, CONNECTION)
    assert gone.changes[-1] == WriteSwitched("broker-a", False, 2, "its master is gone, and a slave acts for it")
    assert perms(tables, "T") == {"broker-a": 4}


def test_a_broker_survives_the_close_of_its_old_connection() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    register(tables, topics=["T", "U"], over=OTHER)
    assert removal.connection_closed(tables, CONNECTION).changes == ()
    assert removal.connection_closed(tables, OTHER).changes != ()


def test_one_address_goes_with_a_connection_that_had_several() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    register(tables, "broker-b", B, topics=["T", "U"])
    removal.connection_closed(tables, CONNECTION)
    assert list(tables.broker_addr_table) == ["broker-b"]


def test_a_broker_that_leaves_by_itself() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    stranger = removal.unregister(tables, BrokerAddrInfo("DefaultCluster", B), "broker-x", 0)
    assert stranger.changes == ()
    assert removal.unregister(tables, BrokerAddrInfo("DefaultCluster", B), "broker-a", 0).changes == ()
    gone = removal.unregister(tables, KEY_A, "broker-a", 0)
    assert gone.changes[0] == BrokerRemoved("broker-a", 0, A, "DefaultCluster", RemovalReason.UNREGISTERED)
    assert not tables.cluster_addr_table


def test_smallest_ids_that_change_are_sent_to_the_right_brokers() -> None:
    tables = RouteTables()
    register(tables, address=SLAVE, broker_id=1, topics=["T", "U"])
    register(tables, address=B, broker_id=2, topics=["T", "U"])
    came = register(tables, topics=["T", "U"])
    assert came.notice == MinBrokerIdChange("broker-a", 0, A, (SLAVE, B), None, "127.0.0.1:10912")
    assert register(tables, topics=["T", "U"]).notice is None
    assert removal.unregister(tables, BrokerAddrInfo("DefaultCluster", B), "broker-a", 2).notices == ()
    went = removal.unregister(tables, KEY_A, "broker-a", 0)
    assert went.notices == (MinBrokerIdChange("broker-a", 1, SLAVE, (SLAVE,), A),)
    assert removal.unregister(tables, BrokerAddrInfo("DefaultCluster", SLAVE), "broker-a", 1).notices == ()


# Changes from outside


def test_write_permission_taken_and_given_back() -> None:
    tables = RouteTables()
    topics = [TopicConfig("T", 4, 4), TopicConfig("TBW102", 8, 8, 7)]
    register(tables, topics=topics)
    assert outside.wipe_write_perm(tables, "broker-a") == WriteSwitched("broker-a", False, 2, "asked for")
    assert (perms(tables, "T"), perms(tables, "TBW102")) == ({"broker-a": 4}, {"broker-a": 5})
    register(tables, topics=topics)
    assert perms(tables, "T") == {"broker-a": 4}  # the same version leaves it
    assert outside.add_write_perm(tables, "broker-a").topics == 2
    assert perms(tables, "TBW102") == {"broker-a": 6}
    register(tables, topics=topics, version=2)
    assert perms(tables, "TBW102") == {"broker-a": 7}
    assert outside.wipe_write_perm(tables, "nobody").topics == 0


def test_a_deleted_topic_comes_back_with_the_next_registration_though_its_body_is_known() -> None:
    tables = RouteTables()
    requested = desk.registration(topics=["T", "U"])
    register(tables, topics=["T", "U"], digest=b"d")
    assert registration.knows(tables, requested.header, b"d")
    assert outside.delete_topic(tables, "T") == [QueuesRemoved("T", "broker-a"), TopicRemoved("T")]
    assert lookups.route(tables, "T") is None
    assert not registration.knows(tables, requested.header, b"d")
    register(tables, topics=["T", "U"])
    assert lookups.route(tables, "T") is not None


def test_a_topic_deleted_in_one_cluster() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    register(tables, "broker-b", B, topics=["T", "U"], cluster="Other")
    assert outside.delete_topic(tables, "T", "Other") == [QueuesRemoved("T", "broker-b")]
    assert outside.delete_topic(tables, "T", "Nowhere") == []
    assert perms(tables, "T") == {"broker-a": 6}
    assert outside.delete_topic(tables, "unknown") == []


def test_a_topic_set_from_outside() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    mine, strange = QueueData("broker-a", 2, 2, 6), QueueData("nobody", 2, 2, 6)
    assert outside.set_topic(tables, "New", []) is None
    assert outside.set_topic(tables, "New", [mine, strange]) == TopicSet("New", (), "nobody")
    assert "New" not in tables.topic_queue_table
    assert outside.set_topic(tables, "New", [mine]) == TopicSet("New", ("broker-a",), None)
    assert outside.set_topic(tables, "T", [mine, strange]) == TopicSet("T", ("broker-a",), "nobody")
    assert tables.topic_queue_table["T"]["broker-a"].read_queue_nums == 2


def test_other_rules_have_registrations_read_again() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"], digest=b"d")
    tables.rules = TableRules(delete_topic_with_broker_registration=True)
    assert not registration.knows(tables, desk.registration(topics=["T", "U"]).header, b"d")


def test_a_slave_that_acts_for_a_master_that_left_has_its_topics_read_again() -> None:
    tables = RouteTables(TableRules(delete_topic_with_broker_registration=True))
    slave: dict[str, Any] = {"address": SLAVE, "broker_id": 1, "topics": ["T", "U"], "enable_acting_master": True}
    register(tables, digest=b"s", **slave)
    register(tables, topics=["T", "U", "V"], digest=b"m")
    removal.unregister(tables, KEY_A, "broker-a", 0)
    assert not registration.knows(tables, desk.registration(**slave).header, b"s")
    register(tables, digest=b"s", **slave)
    assert "V" not in tables.topic_queue_table


def test_an_address_in_two_clusters_has_its_topics_read_again_after_it_left_one() -> None:
    tables = RouteTables()
    register(tables, topics=["T"], cluster="One", digest=b"one")
    register(tables, topics=["T", "U"], cluster="Two", digest=b"two")
    removal.unregister(tables, BrokerAddrInfo("One", A), "broker-a", 0)
    assert not tables.topic_queue_table
    register(tables, topics=["T"], cluster="One", digest=b"one")
    assert not registration.knows(tables, desk.registration(topics=["T", "U"], cluster="Two").header, b"two")
