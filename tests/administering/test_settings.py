"""Settings of servers, topics and groups beside each other: what differs between brokers, and from the default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyrmq_core import InvalidArgument
from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_core.client.admin.default_settings import broker_defaults
from pyrmq_core.client.admin.settings_tables import (
    HIDDEN,
    SettingsTable,
    changes_of,
    group_table,
    settings_table,
    topic_settings,
    topic_table,
)
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.protocol.framing.versions import V5_0_0


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, topics={"orders": 4}) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(nameserver=cluster.nameserver) as admin:
        yield admin


def unusual(table: SettingsTable) -> dict[str, list[str | None]]:
    return {row.name: list(row.values.values()) for row in table.unusual}


def test_a_broker_beside_the_other_and_the_default(admin: Admin) -> None:
    before = unusual(admin.brokers.settings())
    assert "fileReservedTime" not in before
    admin.brokers.update_config({"fileReservedTime": "48"}, broker="broker-b")
    table = admin.brokers.settings()
    assert unusual(table) == {**before, "fileReservedTime": ["72", "48"]}
    row = next(row for row in table.rows if row.name == "fileReservedTime")
    assert (row.default, row.differs, row.changed) == ("72", True, True)
    admin.brokers.update_config({"fileReservedTime": "48"}, broker="broker-a")
    row = next(row for row in admin.brokers.settings().rows if row.name == "fileReservedTime")
    assert (row.differs, row.changed) == (False, True)


def test_a_name_server_beside_the_default(admin: Admin) -> None:
    before = unusual(admin.nameservers.settings())
    admin.nameservers.update_config({"orderMessageEnable": "true"})
    assert unusual(admin.nameservers.settings()) == {**before, "orderMessageEnable": ["true"]}


def test_a_release_has_its_own_defaults() -> None:
    settings = {"new": {"transactionCheckInterval": "30000"}, "old": {"transactionCheckInterval": "60000"}}
    defaults = {"new": broker_defaults(V5_0_0), "old": broker_defaults(V5_0_0 - 1)}
    (row,) = settings_table(settings, defaults, {}).rows
    assert (row.changed, row.differs, row.default) == (False, True, "30000 or 60000")


SECRETS = (
    "initAuthenticationUser",
    "innerClientAuthenticationCredentials",
    "tls.server.keyPassword",
    "accessKey",
    "secretKey",
    "metricsGrpcExporterHeader",
    "some.token",
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_hidden_and_its_difference_is_not(name: str) -> None:
    (row,) = settings_table({"a": {name: "one"}, "b": {name: "two"}}, {"a": {}, "b": {}}, {}).rows
    assert (dict(row.values), row.differs) == ({"a": HIDDEN, "b": HIDDEN}, True)


def test_what_names_a_server_is_no_difference(admin: Admin) -> None:
    rows = {row.name: row for row in admin.brokers.settings().rows}
    assert list(rows["brokerName"].values.values()) == ["broker-a", "broker-b"]
    assert not {"brokerName", "listenPort", "storePathRootDir"} & unusual(admin.brokers.settings()).keys()


def test_a_topic_at_each_broker(admin: Admin) -> None:
    admin.create_topic("orders", queues=6, broker="broker-b", perm=Permission.READ)
    configs = admin.topics.configs("orders")
    assert {name: config.topic for name, config in configs.answers.items()} == dict.fromkeys(
        ("broker-a", "broker-b"), "orders"
    )
    table = topic_table(configs.answers, configs.failures)
    assert unusual(table) == {"perm": ["6", "4"], "readQueueNums": ["4", "6"], "writeQueueNums": ["4", "6"]}


def test_the_preview_of_a_topic_is_what_its_creation_makes(admin: Admin) -> None:
    wanted = TopicConfig("orders", 4, 6, Permission.READ, attributes={"message.type": "FIFO"})
    preview = admin.preview_topic(wanted, broker="broker-b")
    before, after = preview["broker-b"]
    assert before == admin.topics.configs("orders").answers["broker-b"]
    admin.create_topic(
        "orders", queues=6, read_queues=4, perm=Permission.READ, attributes=wanted.attributes, broker="broker-b"
    )
    assert admin.topics.configs("orders").answers["broker-b"] == after
    assert [name for name, _, _ in changes_of(topic_settings(before), topic_settings(after))] == [
        "perm",
        "writeQueueNums",
        "message.type",
    ]
    assert preview.keys() == {"broker-b"}
    unnamed = admin.preview_topic(TopicConfig("orders", 4, 6, Permission.READ), broker="broker-b")["broker-b"]
    assert unnamed == (after, after)  # attributes stay
    assert {before for before, _ in admin.preview_topic(TopicConfig("new", 4, 4)).values()} == {None}
    assert "new" not in admin.topics.list()


@pytest.mark.parametrize("wrong", [TopicConfig("a b"), TopicConfig("TBW102"), TopicConfig("orders", 0, 4)])
def test_a_preview_has_the_checks_of_a_creation(admin: Admin, wrong: TopicConfig) -> None:
    with pytest.raises(InvalidArgument) as previewed:
        admin.preview_topic(wrong)
    with pytest.raises(InvalidArgument, match=str(previewed.value)[:20]):
        admin.create_topic(wrong.topic, queues=wrong.write_queue_nums, read_queues=wrong.read_queue_nums)


def test_an_order_topic_without_queues_is_refused_before_it_is_there(admin: Admin) -> None:
    with pytest.raises(InvalidArgument, match="queues=0 with order=True"):
        admin.create_topic("ordered", queues=0, broker="broker-a", order=True)
    assert "ordered" not in admin.topics.list()


def test_the_preview_of_a_group_is_what_its_creation_makes(admin: Admin) -> None:
    admin.groups.create("billing", retry_max_times=5)
    preview = admin.groups.preview_create("billing", {"consume_enable": False}, broker="broker-a")
    before, after = preview["broker-a"]
    assert before is not None
    assert (before.retry_max_times, before.consume_enable) == (5, True)
    assert (after.retry_max_times, after.consume_enable) == (5, False)
    admin.groups.create("billing", consume_enable=False, broker="broker-a")
    configs = admin.groups.config("billing")
    assert configs["broker-a"] == after
    assert unusual(group_table(configs, {})) == {"consumeEnable": ["false", "true"], "retryMaxTimes": ["5", "5"]}
    assert {before for before, _ in admin.groups.preview_create("new", {}).values()} == {None}


@pytest.mark.parametrize(("name", "value"), [("retry_max_times", -2), ("retry_queue_nums", -1)])
def test_a_group_has_no_fewer_retries(admin: Admin, name: str, value: int) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}={value}"):
        admin.groups.preview_create("billing", {name: value})
    with pytest.raises(InvalidArgument, match=f"{name}={value}"):
        admin.groups.create("billing", **{name: value})  # type: ignore[arg-type]
    assert admin.groups.config("billing") == {}
