"""The rules of the route tables, one by one; `test_tables_model` walks through their mixtures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyrmq_core.model import TopicConfig
from pyrmq_core.nameserver.tables import (
    BrokerAddrInfo,
    RouteTables,
    TableRules,
    lookups,
    outside,
    registration,
    removal,
)
from pyrmq_core.nameserver.tables.changes import (
    AddressMoved,
    BrokerJoined,
    BrokerNameRemoved,
    BrokerRemoved,
    Change,
    ClusterRemoved,
    MinBrokerIdChange,
    QueuesRemoved,
    Registration,
    RegistrationIgnored,
    RegistrationRefused,
    RemovalReason,
    TopicRemoved,
    TopicSet,
    TopicsTaken,
    WriteSwitched,
)
from pyrmq_core.protocol.requests.topic_lists import TopicList
from pyrmq_core.protocol.route import QueueData
from pyrmq_core.protocol.topic_config import DataVersion
from tests.nameserver import desk

A, B, SLAVE = "127.0.0.1:10911", "127.0.0.1:20911", "127.0.0.1:10921"
KEY_A = BrokerAddrInfo("DefaultCluster", A)
CONNECTION, OTHER = object(), object()


def register(
    tables: RouteTables, *args: Any, at: int = 0, over: object = CONNECTION, digest: bytes | None = None, **more: Any
) -> Registration:
    asked = desk.registration(*args, **more)
    return registration.register(tables, asked.header, asked.body(), connection=over, now_ms=at, digest=digest)


def perms(tables: RouteTables, topic: str) -> dict[str, int]:
    return {name: queue.perm for name, queue in tables.topic_queue_table.get(topic, {}).items()}


def kinds(changes: tuple[Change, ...] | list[Change]) -> list[type]:
    return [type(change) for change in changes]


def test_a_first_registration_fills_the_five_tables() -> None:
    tables = RouteTables()
    done = register(tables, topics=["T"], filters=["f:1"], at=7)
    assert done.accepted
    assert done.changes == (
        TopicsTaken("broker-a", 1, 0),
        BrokerJoined("broker-a", 0, A, "DefaultCluster", "127.0.0.1:10912"),
    )
    assert tables.topic_queue_table == {"T": {"broker-a": QueueData("broker-a", 4, 4, 6)}}
    assert dict(tables.broker_addr_table["broker-a"].broker_addrs) == {0: A}
    assert list(tables.cluster_addr_table["DefaultCluster"]) == ["broker-a"]
    live = tables.broker_live_table[KEY_A]
    assert (live.last_update_ms, live.heartbeat_timeout_ms, live.connection) == (7, 120_000, CONNECTION)
    assert tables.filter_server_table == {KEY_A: ("f:1",)}


def test_the_same_version_again_changes_nothing_but_the_sign_of_life() -> None:
    tables = RouteTables()
    register(tables, topics=["T"])
    changed_config = TopicConfig("T", 8, 8)
    assert register(tables, topics=[changed_config], at=5).changes == ()
    assert tables.topic_queue_table["T"]["broker-a"].read_queue_nums == 4
    assert tables.broker_live_table[KEY_A].last_update_ms == 5


def test_a_topic_that_is_missing_is_taken_whatever_the_version() -> None:
    tables = RouteTables()
    register(tables, topics=["T"])
    assert register(tables, topics=["T", "U"]).changes == (TopicsTaken("broker-a", 1, 0),)


def test_another_version_replaces_what_is_different_and_forgets_nothing() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U", "V"])
    done = register(tables, topics=["T", TopicConfig("U", 8, 8)], version=2)
    assert done.changes == (TopicsTaken("broker-a", 0, 1),)
    assert tables.topic_queue_table["U"]["broker-a"].write_queue_nums == 8
    assert set(tables.topic_queue_table) == {"T", "U", "V"}
    assert tables.broker_live_table[KEY_A].data_version.counter == 2


def test_an_older_version_is_another_version_too() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"], version=5)
    assert register(tables, topics=[TopicConfig("T", 1, 1)], version=4).changes == (TopicsTaken("broker-a", 0, 1),)


def test_absent_topics_are_forgotten_when_the_rule_says_so() -> None:
    tables = RouteTables(TableRules(delete_topic_with_broker_registration=True))
    register(tables, topics=["T", "U"])
    register(tables, "broker-b", B, topics=["U"])
    done = register(tables, topics=["V", "W"], version=2)
    assert done.changes[:3] == (QueuesRemoved("T", "broker-a"), TopicRemoved("T"), QueuesRemoved("U", "broker-a"))
    assert perms(tables, "U") == {"broker-b": 6}
    kept = register(tables, topics=["X"], version=3, infos={"X": {"bname": "broker-a", "epoch": 1}})
    assert kinds(list(kept.changes)) == [TopicsTaken]  # static topics are never forgotten so


@pytest.mark.parametrize("accepts", [True, False])
def test_a_first_registration_with_one_topic(accepts: bool) -> None:
    tables = RouteTables(TableRules(accept_first_registration_of_one_topic=accepts))
    done = register(tables, topics=["T"])
    assert done.accepted is accepts
    assert ("T" in tables.topic_queue_table) is accepts
    if not accepts:  # what 5.4.0 leaves behind
        assert done.changes == (RegistrationRefused("broker-a", 0, A),)
        assert dict(tables.broker_addr_table["broker-a"].broker_addrs) == {}
        assert lookups.cluster_info(tables).cluster_addr_table == {"DefaultCluster": ("broker-a",)}
        assert not tables.broker_live_table
        assert register(tables, topics=[]).accepted
        assert register(tables, topics=["T"], version=2).accepted


def test_topics_of_a_slave_are_not_taken_and_it_learns_its_master() -> None:
    tables = RouteTables()
    register(tables, topics=["T"])
    done = register(tables, address=SLAVE, broker_id=1, topics=["T", "SlaveOnly"], ha="slave-ha", version=9)
    assert (done.master_addr, done.ha_server_addr) == (A, "127.0.0.1:10912")
    assert "SlaveOnly" not in tables.topic_queue_table
    assert register(tables, topics=["T"]).master_addr is None


def test_a_slave_without_a_living_master_learns_nothing() -> None:
    tables = RouteTables()
    assert register(tables, address=SLAVE, broker_id=1, topics=["T", "U"]).master_addr is None
    register(tables, topics=["T"])
    del tables.broker_live_table[KEY_A]
    assert register(tables, address=SLAVE, broker_id=1, topics=["T", "U"]).master_addr is None


@pytest.mark.parametrize(("header", "taken"), [(None, False), (False, True), (True, True)])
def test_topics_of_the_smallest_slave_are_taken_if_it_knows_of_acting_masters(header: bool | None, taken: bool) -> None:
    tables = RouteTables()
    register(tables, address=SLAVE, broker_id=1, topics=["T", "U"], enable_acting_master=header)
    assert ("T" in tables.topic_queue_table) is taken
    if taken:
        assert perms(tables, "T") == {"broker-a": 4 if header else 6}
        register(tables, address=B, broker_id=2, topics=["V", "W"], enable_acting_master=header, version=2)
        assert "V" not in tables.topic_queue_table


def test_an_address_stands_under_one_id() -> None:
    """A slave that becomes master moves."""
    tables = RouteTables()
    register(tables, topics=["T"])
    register(tables, address=SLAVE, broker_id=1, topics=["T"])
    removal.connection_closed(tables, CONNECTION)
    done = register(tables, address=SLAVE, broker_id=0, topics=["T"], version=2)
    assert AddressMoved("broker-a", SLAVE, 1, 0) in done.changes
    assert dict(tables.broker_addr_table["broker-a"].broker_addrs) == {0: SLAVE}


def test_another_address_takes_an_id_over_unless_the_holder_is_younger() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"], version=DataVersion(1, 1, 5))
    late = register(tables, address=B, topics=["T", "U"], version=DataVersion(1, 1, 4), over=OTHER)
    assert late.accepted
    assert late.changes == (RegistrationIgnored("broker-a", 0, B, A),)
    assert BrokerAddrInfo("DefaultCluster", B) not in tables.broker_live_table
    assert tables.broker_addr_table["broker-a"].master == A
    equal = register(tables, address=B, topics=["T", "U"], version=DataVersion(1, 1, 5), over=OTHER)
    assert BrokerJoined in kinds(list(equal.changes))
    assert tables.broker_addr_table["broker-a"].master == B


def test_what_an_address_left_behind_goes_with_its_connection() -> None:
    """The broker came back under another address: the old one has no name any more."""
    tables = RouteTables()
    register(tables, topics=["T", "U"], filters=["f:1"])
    register(tables, address=B, topics=["T", "U"], over=OTHER)
    gone = removal.connection_closed(tables, CONNECTION)
    assert gone.changes == (BrokerRemoved(None, None, A, "DefaultCluster", RemovalReason.CONNECTION_CLOSED),)
    assert perms(tables, "T") == {"broker-a": 6}
    assert KEY_A not in tables.broker_live_table
    assert not tables.filter_server_table


def test_an_empty_filter_list_removes_its_entry_and_an_absent_one_keeps_it() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"], filters=["f:1"])
    asked = desk.registration(topics=["T", "U"])
    absent = replace(asked.body(), filter_servers=None)
    registration.register(tables, asked.header, absent, connection=CONNECTION, now_ms=0)
    assert tables.filter_server_table == {KEY_A: ("f:1",)}
    route = lookups.route(tables, "T")
    assert route is not None
    assert route.filter_server_table == {A: ["f:1"]}
    register(tables, topics=["T", "U"])
    assert not tables.filter_server_table
    assert lookups.route(tables, "T") != route


def test_mappings_of_static_topics_are_carried_into_routes() -> None:
    tables = RouteTables()
    info = {"bname": "broker-a", "totalQueues": 4, "currIdMap": {"0": 0}}
    register(tables, topics=["T", "U"], infos={"T": info})
    route = lookups.route(tables, "T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"broker-a": info}
    newer = {**info, "epoch": 2}
    register(tables, topics=["T", "U"], infos={"T": newer})
    assert tables.topic_queue_mapping_info_table["T"] == {"broker-a": info}  # the same version
    register(tables, topics=["T", "U"], infos={"T": newer}, version=2)
    assert tables.topic_queue_mapping_info_table["T"] == {"broker-a": newer}
    outside.delete_topic(tables, "T")
    assert not tables.topic_queue_mapping_info_table


# Signs of life and removal


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
        TopicRemoved("T"),
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


def test_smallest_ids_that_change_are_told_to_the_right_ones() -> None:
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
    asked = desk.registration(topics=["T", "U"])
    register(tables, topics=["T", "U"], digest=b"d")
    assert registration.knows(tables, asked.header, b"d")
    assert outside.delete_topic(tables, "T") == [QueuesRemoved("T", "broker-a"), TopicRemoved("T")]
    assert lookups.route(tables, "T") is None
    assert not registration.knows(tables, asked.header, b"d")
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


# Routes


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
    assert lookups.all_topics(tables).topics == ("plain", "unit", "sub", "both", "mine")
    assert lookups.topics_of_cluster(tables, "Other").topics == ("plain", "mine")
    assert lookups.topics_of_cluster(tables, None).topics == ()
    assert lookups.unit_topics(tables).topics == ("unit", "both")
    assert lookups.unit_sub_topics(tables).topics == ("sub", "both")
    assert lookups.unit_sub_ununit_topics(tables).topics == ("sub",)
    assert lookups.system_topics(tables) == TopicList(("DefaultCluster", "broker-a", "Other", "broker-b"), A)
    assert lookups.broker_member_group(tables, "Other", "broker-b").broker_addrs == {0: B}
    assert lookups.broker_member_group(tables, "Other", "nobody").broker_addrs == {}


def test_each_change_is_one_line() -> None:
    changes: list[Change] = [
        BrokerJoined("b", 0, A, "C", None),
        AddressMoved("b", A, 1, 0),
        RegistrationIgnored("b", 0, B, A),
        RegistrationRefused("b", 0, A),
        TopicsTaken("b", 1, 2),
        BrokerRemoved("b", 0, A, "C", RemovalReason.SILENT),
        BrokerRemoved(None, None, A, "C", RemovalReason.CONNECTION_CLOSED),
        BrokerNameRemoved("b"),
        ClusterRemoved("C"),
        TopicRemoved("T"),
        QueuesRemoved("T", "b"),
        WriteSwitched("b", False, 3, "asked for"),
        TopicSet("T", ("b",), "x"),
        TopicSet("T", (), None),
    ]
    lines = [str(change) for change in changes]
    assert len(set(lines)) == len(lines)
    assert not any("\n" in line for line in lines)
    assert lines[5] == "removed broker b, id 0, 127.0.0.1:10911, cluster C: it was silent for too long"
