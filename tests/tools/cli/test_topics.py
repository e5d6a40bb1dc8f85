"""`pyrmq topic stats`, `perm`, `order`, `groups`, `clusters` on a cluster in the process, also with a broker down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.testing import Command, CutConnection, Peer, RequestCode
from tests.support.terminal import Terminal


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, topics={"T": 2}) as cluster:
        yield cluster


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


async def cut(_request: Command, _peer: Peer) -> None:
    raise CutConnection


def test_offsets_and_the_last_time(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    with Producer("G", nameserver=cluster.nameserver) as producer:
        producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-b", 1))
    rows = terminal.rows("topic", "stats", "T")
    assert [(row["brokerName"], row["queueId"], row["messages"]) for row in rows] == [
        ("broker-a", 0, 0),
        ("broker-a", 1, 0),
        ("broker-b", 0, 0),
        ("broker-b", 1, 1),
    ]
    assert {row["lastUpdated"] for row in rows[:3]} == {None}
    assert str(rows[3]["lastUpdated"]).endswith("+00:00")
    header = terminal.text("topic", "stats", "T").splitlines()[0].split()
    assert header == ["brokerName", "queueId", "minOffset", "maxOffset", "messages", "lastUpdated"]
    assert "Nowhere" in terminal.refused(1, "topic", "stats", "Nowhere")


def test_a_broker_that_is_down_has_a_row_with_its_error() -> None:
    with EmbeddedCluster(brokers=2, topics={"T": 1}) as cluster:
        for code in RequestCode:
            cluster.control(code, cut, server="broker-b")
        terminal = Terminal(cluster.nameserver)
        up, down = terminal.rows("topic", "stats", "T")
        header, _, line = terminal.text("topic", "stats", "T").splitlines()
        assert (up["brokerName"], up["messages"], up["error"]) == ("broker-a", 0, None)
        assert (down["brokerName"], down["queueId"]) == ("broker-b", None)
        assert cluster.brokers["broker-b"] in str(down["error"])
        assert header.split()[-1] == "error"
        assert str(down["error"]) in line


def test_who_may_use_a_topic(terminal: Terminal) -> None:
    assert terminal.rows("topic", "perm", "T") == [
        {"brokerName": name, "perm": 6, "may": "read, write"} for name in ("broker-a", "broker-b")
    ]
    assert terminal.rows("topic", "perm", "T", "r", "-b", "broker-b") == [
        {"brokerName": "broker-b", "before": 6, "after": 4}
    ]
    assert [row["may"] for row in terminal.rows("topic", "perm", "T")] == ["read, write", "read"]
    assert terminal.rows("topic", "perm", "T", "2", "--cluster", "DefaultCluster")[0]["after"] == 2
    assert [row["may"] for row in terminal.rows("topic", "perm", "T")] == ["write", "write"]
    assert [row["after"] for row in terminal.rows("topic", "perm", "T", "rw")] == [6, 6]
    assert "is not on the broker" in terminal.refused(1, "topic", "perm", "T", "r", "-b", "nowhere")
    assert "Invalid value" in terminal.refused(2, "topic", "perm", "T", "7")
    assert "belong to a change" in terminal.refused(2, "topic", "perm", "T", "-b", "broker-a")


def test_the_order_of_a_topic(terminal: Terminal) -> None:
    assert terminal.rows("topic", "order", "T") == []
    rows = [{"brokerName": "broker-a", "queues": 2}, {"brokerName": "broker-b", "queues": 1}]
    assert terminal.rows("topic", "order", "T", "broker-a:2", "broker-b:1") == rows
    assert terminal.text("kv", "get", "ORDER_TOPIC_CONFIG", "T") == "broker-a:2;broker-b:1\n"
    assert terminal.rows("topic", "order", "T", "--delete") == []
    for wrong in ("broker-a", "broker-a:0", ":2", "broker-a:x"):
        assert "is not BROKER:QUEUES" in terminal.refused(2, "topic", "order", "T", wrong)
    assert "exclude each other" in terminal.refused(2, "topic", "order", "T", "broker-a:1", "--delete")


def test_groups_and_clusters_of_a_topic(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
        consumer.commit(MessageQueue("T", "broker-a", 0), 0)
    assert terminal.rows("topic", "groups", "T") == [{"group": "readers"}]
    assert terminal.rows("topic", "clusters", "T") == [{"cluster": "DefaultCluster"}]


def test_a_topic_has_a_type_and_attributes(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    terminal.text("topic", "create", "Typed", "--type", "fifo", "--attribute", "reserve.time=3")
    with Admin(nameserver=cluster.nameserver) as admin:
        assert {tuple(sorted(config.attributes.items())) for config in admin.topic_config("Typed").values()} == {
            (("message.type", "FIFO"), ("reserve.time", "3"))
        }
    assert "'reserve' is not NAME=VALUE" in terminal.refused(2, "topic", "create", "Typed", "--attribute", "reserve")
    wrong = terminal.refused(1, "topic", "create", "Other", "--attribute", "message.type=PRIVATE")
    assert "NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE are possible" in wrong


def test_settings_stand_beside_each_other(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    terminal.text("topic", "create", "Settings", "-r", "3", "-w", "3")
    terminal.text("topic", "create", "Settings", "-r", "5", "-w", "5", "--broker", "broker-b", "--perm", "r")
    rows = {row["setting"]: row for row in terminal.rows("topic", "settings", "Settings")}
    assert rows["perm"] == {
        "setting": "perm",
        "default": "6",
        "values": {"broker-a": "6", "broker-b": "4"},
        "differs": True,
    }
    assert rows["order"]["differs"] is False
    header, *lines = terminal.text("topic", "settings", "Settings").splitlines()
    assert header.split() == ["setting", "default", "broker-a", "broker-b"]
    assert ["readQueueNums", "3", "5"] in [line.split() for line in lines]


def test_settings_of_servers_that_differ(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    terminal.text("broker", "config", "broker-b", "--set", "deleteWhen=05")
    rows = {row["setting"]: row for row in terminal.rows("broker", "config", "--changed")}
    assert rows["deleteWhen"]["values"] == {"broker-a": "04", "broker-b": "05"}
    assert "fileReservedTime" not in rows
    terminal.text("nameserver", "config", "--set", "orderMessageEnable=true")
    changed = {row["setting"]: row["default"] for row in terminal.rows("nameserver", "config", "--changed")}
    assert changed["orderMessageEnable"] == "false"
    for server in ("broker", "nameserver"):
        assert "changes nothing" in terminal.refused(2, server, "config", "--changed", "--set", "deleteWhen=06")


def test_a_group_is_made_at_one_broker(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    terminal.text("group", "create", "one-broker", "--broker", "broker-b")
    with Admin(nameserver=cluster.nameserver) as admin:
        assert list(admin.groups.config("one-broker")) == ["broker-b"]
