"""The rules of registration, one by one; `test_tables_model` walks through their mixtures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.routes.route import QueueData
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.nameserver.tables import BrokerAddrInfo, RouteTables, TableRules, registration, removal
from pyrmq_core.servers.nameserver.tables import admin_changes as outside
from pyrmq_core.servers.nameserver.tables import queries as lookups
from pyrmq_core.servers.nameserver.tables.changes import (
    AddressMoved,
    BrokerJoined,
    BrokerRemoved,
    PlaceTaken,
    QueuesRemoved,
    RegistrationIgnored,
    RegistrationRefused,
    RemovalReason,
    TopicRemoved,
    TopicsTaken,
)
from tests.servers.nameserver import desk
from tests.servers.nameserver.table_steps import CONNECTION, KEY_A, OTHER, SLAVE, A, B, kinds, perms, register


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
    assert kinds(list(kept.changes)) == [TopicsTaken]  # this never removes a static topic


@pytest.mark.parametrize("accepts", [True, False])
def test_a_first_registration_with_one_topic(accepts: bool) -> None:
    tables = RouteTables(TableRules(accept_first_registration_of_one_topic=accepts))
    done = register(tables, topics=["T"])
    assert done.accepted is accepts
    assert ("T" in tables.topic_queue_table) is accepts
    if not accepts:  # the entry that 5.4.0 leaves
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


@pytest.mark.parametrize(("header", "are_taken"), [(None, False), (False, True), (True, True)])
def test_topics_of_the_smallest_slave_are_taken_if_it_knows_of_acting_masters(
    header: bool | None, are_taken: bool
) -> None:
    tables = RouteTables()
    register(tables, address=SLAVE, broker_id=1, topics=["T", "U"], enable_acting_master=header)
    assert ("T" in tables.topic_queue_table) is are_taken
    if are_taken:
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


def test_another_address_takes_an_id_over_unless_the_holder_is_newer() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"], version=DataVersion(1, 1, 5))
    late = register(tables, address=B, topics=["T", "U"], version=DataVersion(1, 1, 4), over=OTHER)
    assert late.accepted
    assert late.changes == (RegistrationIgnored("broker-a", 0, B, A),)
    assert BrokerAddrInfo("DefaultCluster", B) not in tables.broker_live_table
    assert tables.broker_addr_table["broker-a"].master == A
    equal = register(tables, address=B, topics=["T", "U"], version=DataVersion(1, 1, 5), over=OTHER)
    assert BrokerJoined in kinds(list(equal.changes))
    assert PlaceTaken("broker-a", 0, B, A) in equal.changes
    assert tables.broker_addr_table["broker-a"].master == B


def test_a_place_whose_holder_is_gone_or_the_same_is_taken_without_a_word() -> None:
    tables = RouteTables()
    register(tables, topics=["T", "U"])
    again = register(tables, topics=["T", "U"], version=2)
    del tables.broker_live_table[KEY_A]
    other = register(tables, address=B, topics=["T", "U"], version=3, over=OTHER)
    assert PlaceTaken not in kinds([*again.changes, *other.changes])


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
    requested = desk.registration(topics=["T", "U"])
    absent = replace(requested.body(), filter_servers=None)
    registration.register(tables, requested.header, absent, connection=CONNECTION, now_ms=0)
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
