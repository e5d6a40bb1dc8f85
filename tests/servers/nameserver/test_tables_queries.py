"""Queries of the route tables: routes, lists of topics; and each change as a line."""

from __future__ import annotations

import pytest

from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.requests.nameserver.topic_lists import TopicList
from pyrmq_core.servers.nameserver.tables import RouteTables, TableRules, removal
from pyrmq_core.servers.nameserver.tables import admin_changes as outside
from pyrmq_core.servers.nameserver.tables import queries as lookups
from pyrmq_core.servers.nameserver.tables.changes import (
    AddressMoved,
    BrokerJoined,
    BrokerNameRemoved,
    BrokerRemoved,
    Change,
    ClusterRemoved,
    PlaceTaken,
    QueuesRemoved,
    RegistrationIgnored,
    RegistrationRefused,
    RemovalReason,
    TopicRemoved,
    TopicSet,
    TopicsRemoved,
    TopicsTaken,
    WriteSwitched,
)
from tests.servers.nameserver.table_steps import CONNECTION, OTHER, SLAVE, A, B, register


def test_a_route_is_the_same_value_until_it_changes() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    first = lookups.route(tables, "T")
    register(tables, topics=["T", "U", "V"], version=2)
    assert lookups.route(tables, "T") is first
    register(tables, topics=[TopicConfig("T", 8, 8)], version=3)
    second = lookups.route(tables, "T")
    assert second is not first
    register(tables, "broker-b", B, topics=["V", "W"])
    assert lookups.route(tables, "T") == second
    removal.connection_closed(tables, CONNECTION)
    assert lookups.route(tables, "T") is None


@pytest.mark.parametrize("supported", [True, False])
def test_an_acting_master_stands_in_the_masters_place(supported: bool) -> None:
    tables = RouteTables(TableRules(support_acting_master=supported))
    member_topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    topics = ["T", TopicConfig(member_topic, 1, 1, 1)]
    register(tables, topics=topics, enable_acting_master=True)
    for broker_id, address in ((2, B), (1, SLAVE)):
        register(tables, address=address, broker_id=broker_id, topics=topics, over=OTHER, enable_acting_master=True)
    removal.connection_closed(tables, CONNECTION)
    route, members = lookups.route(tables, "T"), lookups.route(tables, member_topic)
    assert route is not None
    assert members is not None
    expected = {0: SLAVE, 2: B} if supported else {1: SLAVE, 2: B}
    assert dict(route.broker_datas[0].broker_addrs) == expected
    assert dict(members.broker_datas[0].broker_addrs) == {1: SLAVE, 2: B}
    outside.add_write_perm(tables, "broker-a")
    writable = lookups.route(tables, "T")
    assert writable is not None
    assert dict(writable.broker_datas[0].broker_addrs) == {1: SLAVE, 2: B}


def test_a_route_within_a_zone() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"], zone_name="East", filters=["f:1"])
    register(tables, "broker-b", B, topics=["T", "U"], zone_name="West", filters=["f:2"])
    register(tables, "broker-c", "127.0.0.1:30911", broker_id=1, topics=["T", "U"], enable_acting_master=False)
    route = lookups.route(tables, "T")
    assert route is not None
    near = lookups.route_in_zone(route, "EAST")
    assert [broker.broker_name for broker in near.broker_datas] == ["broker-a", "broker-c"]
    assert [queue.broker_name for queue in near.queue_datas] == ["broker-a", "broker-c"]
    assert near.filter_server_table == {A: ["f:1"]}


def test_lists_of_topics() -> None:
    tables = RouteTables()
    assert lookups.system_topics(tables) == TopicList(())
    flags = {"plain": 0, "unit": 1, "sub": 2, "both": 3}
    register(tables, topics=[TopicConfig(topic, 4, 4, topic_sys_flag=flag) for topic, flag in flags.items()])
    register(tables, "broker-b", B, topics=["plain", "mine"], cluster="Other")
    assert lookups.all_topics(tables) == ["plain", "unit", "sub", "both", "mine"]
    assert lookups.topics_of_cluster(tables, "Other") == ["plain", "mine"]
    assert lookups.topics_of_cluster(tables, None) == []
    assert lookups.unit_topics(tables) == ["unit", "both"]
    assert lookups.unit_sub_topics(tables) == ["sub", "both"]
    assert lookups.unit_sub_ununit_topics(tables) == ["sub"]
    assert lookups.system_topics(tables) == TopicList(("DefaultCluster", "broker-a", "Other", "broker-b"), A)
    assert lookups.broker_member_group(tables, "Other", "broker-b").broker_addrs == {0: B}
    assert lookups.broker_member_group(tables, "Other", "nobody").broker_addrs == {}


def test_each_change_is_one_line() -> None:
    changes: list[Change] = [
        BrokerJoined("b", 0, A, "C", None),
        AddressMoved("b", A, 1, 0),
        PlaceTaken("b", 0, B, A),
        RegistrationIgnored("b", 0, B, A),
        RegistrationRefused("b", 0, A),
        TopicsTaken("b", 1, 2),
        BrokerRemoved("b", 0, A, "C", RemovalReason.SILENT),
        BrokerRemoved(None, None, A, "C", RemovalReason.CONNECTION_CLOSED),
        BrokerNameRemoved("b"),
        ClusterRemoved("C"),
        TopicRemoved("T"),
        TopicsRemoved(("T", "U")),
        QueuesRemoved("T", "b"),
        WriteSwitched("b", False, 3, "asked for"),
        TopicSet("T", ("b",), "x"),
        TopicSet("T", (), None),
    ]
    lines = [str(change) for change in changes]
    assert len(set(lines)) == len(lines)
    assert not any("\n" in line for line in lines)
    assert lines[6] == "removed broker b, id 0, 127.0.0.1:10911, cluster C: it was silent for too long"
