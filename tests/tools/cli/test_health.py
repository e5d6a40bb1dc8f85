"""`pyrmq health` and `pyrmq top`: a sound cluster, one with a broker down, without a master, or behind; weak keys."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pyrmq_core import Command, Message, MessageQueue, ResponseError
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.client.admin.health_rules import (
    FAIL,
    OK,
    WARN,
    Health,
    check_brokers,
    check_disks,
    check_growth,
    check_order,
    check_subscriptions,
    check_versions,
)
from pyrmq_core.client.admin.values import BrokerStatus, GroupMember, GroupSummary
from pyrmq_core.errors import ConnectFailed
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumerRunningInfo
from pyrmq_core.protocol.requests.figures.runtime_info import RuntimeInfo
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo
from pyrmq_core.protocol.routes.route import BrokerData
from pyrmq_core.testing import CutConnection, Peer, RequestCode
from tests.support.apache import ask
from tests.support.commands import ended, started
from tests.support.guarded import AUTH_5, KEY, MEMBER, READER_SECRET, SECRET, member_requests
from tests.support.terminal import Terminal


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, topics={"T": 1}) as cluster:
        with Producer("G", nameserver=cluster.nameserver) as producer:
            for name in ("broker-a", "broker-b"):
                for _ in range(3):
                    producer.send(Message("T", b"x"), queue=MessageQueue("T", name, 0))
        with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
            consumer.commit(MessageQueue("T", "broker-a", 0), 1)
            consumer.commit(MessageQueue("T", "broker-b", 0), 3)
        yield cluster


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


async def cut(_request: Command, _peer: Peer) -> None:
    raise CutConnection


def checks(terminal: Terminal, status: int, *arguments: str) -> list[tuple[str, str, str]]:
    """Returns the checks of a health that ends with this status: what, how, and what was found."""
    result = terminal.run("health", *arguments, "--json")
    assert result.exit_code == status, result.output
    return [(check["check"], check["status"], check["found"]) for check in json.loads(result.output)]


def test_a_sound_cluster(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    assert [check[:2] for check in checks(terminal, 0)] == [
        ("nameserver", OK),
        ("broker", OK),
        ("broker", OK),
        ("queues", OK),
    ]
    lines = terminal.text("health").splitlines()
    assert lines[0] == f"OK   nameserver  {cluster.nameserver}"
    assert "broker-a (0)" in lines[1]


def test_a_bound_for_lag(terminal: Terminal) -> None:
    assert checks(terminal, 0, "--max-lag", "2")[-1] == ("lag", OK, "9 groups, the furthest 2 messages behind")
    assert checks(terminal, 1, "--max-lag", "1")[-1] == ("lag", FAIL, "group readers is 2 messages behind")
    assert checks(terminal, 1, "--max-lag", "1", "-g", "readers")[-1][1] == FAIL
    assert "needs --max-lag" in terminal.refused(2, "health", "-g", "readers")


def test_a_broker_that_is_down() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        for code in RequestCode:
            cluster.control(code, cut, server="broker-b")
        terminal = Terminal(cluster.nameserver)
        results = checks(terminal, 1)
        assert [check[:2] for check in results if check[0] == "broker"] == [("broker", OK), ("broker", FAIL)]
        assert cluster.brokers["broker-b"] in results[2][2]
        top = json.loads(terminal.text("top", "--once", "--json"))
        assert [broker["reachable"] for broker in top["brokers"]] == [True, False]
        assert "1 unreachable" in terminal.text("top", "--once").splitlines()[0]


def test_queues_without_a_master() -> None:
    with EmbeddedCluster(brokers=1, slaves=1, topics={"Alone": 2}) as cluster:
        cluster.wait_for_slaves()
        cluster.kill("broker-a")
        results = checks(Terminal(cluster.nameserver), 1)
    (queues,) = [check for check in results if check[0] == "queues"]
    assert queues[1] == FAIL
    assert queues[2].startswith("broker-a has no master: its queues of ")
    assert "Alone" in queues[2]


def test_one_of_two_nameservers_is_away(cluster: EmbeddedCluster) -> None:
    with EmbeddedCluster() as other:
        away = other.nameserver
    results = checks(Terminal(f"{away};{cluster.nameserver}"), 0)
    assert [check[:2] for check in results[:2]] == [("nameserver", WARN), ("nameserver", OK)]
    assert Terminal(away).refused(1, "health").count(away) == 1


def test_nameservers_that_differ(cluster: EmbeddedCluster) -> None:
    with EmbeddedCluster() as other:
        other.stop("broker-a")
        results = checks(Terminal(f"{other.nameserver};{cluster.nameserver}"), 1)
        assert [check[:2] for check in results[:3]] == [("nameserver", OK), ("nameserver", OK), ("nameserver", FAIL)]
        address = cluster.brokers["broker-a"]
        assert results[2][2].startswith(f"{other.nameserver} lacks broker-a (0) {address}, broker-b (0)")
        assert Terminal(f"{other.nameserver};{cluster.nameserver}").rows("topic", "list") != []


@pytest.mark.parametrize(
    ("is_master", "error", "ratio", "expected"),
    [
        (True, None, "0.5", ("broker", OK)),
        (True, None, "0.91", ("disk", FAIL)),
        (True, None, "-1", ("broker", OK)),
        (True, ConnectFailed("gone", address="x"), "", ("broker", FAIL)),
        (False, ConnectFailed("gone", address="x"), "", ("broker", WARN)),
        (True, ResponseError("not yours", code=16, remark="", address="x"), "", ("broker", WARN)),
    ],
)
def test_what_is_said_of_a_broker(
    is_master: bool, error: ConnectFailed | ResponseError | None, ratio: str, expected: tuple[str, str]
) -> None:
    info = RuntimeInfo({"commitLogDiskRatio": ratio}) if error is None else None
    row = BrokerStatus("C", "broker-a", 0 if is_master else 1, "127.0.0.1:1", info, error)
    (check,) = check_brokers([row], 90)
    assert (check.check, check.status) == expected
    assert "broker-a" in check.found


def test_no_broker_at_all() -> None:
    assert [check.status for check in check_brokers([], 90)] == [FAIL]


def test_order_topics_with_a_broker_that_is_away() -> None:
    info = ClusterInfo({"a": BrokerData("C", "a", {0: "x:1"}), "b": BrokerData("C", "b", {1: "x:2"})}, {})
    assert list(check_order({"T": "a:2"}, info)) == []
    (check,) = check_order({"T": "a:2;b:2;c:1"}, info)
    assert (check.status, check.found) == (FAIL, "order topic T has queues at b, c, without a master")
    assert [check.status for check in check_order({"T": "a"}, info)] == [WARN]


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def row(name: str, version: str, ratio: float = 0.5, cluster: str = "C") -> BrokerStatus:
    info = RuntimeInfo({"brokerVersionDesc": version, "commitLogDiskRatio": str(ratio)})
    return BrokerStatus(cluster, name, 0, f"{name}:1", info)


def test_a_broker_of_another_version() -> None:
    same = [row("a", "V5_3_2"), row("b", "V5_3_2"), row("c", "V4_9_7", cluster="D")]
    assert list(check_versions(same)) == []
    (check,) = check_versions([*same, row("e", "V5_1_0")])
    assert (check.status, check.subject) == (WARN, "e")
    assert check.found == "e (0) e:1 is of 5.1.0, and 2 of 3 brokers of 5.3.2"


@pytest.mark.parametrize(
    ("before", "now", "at"),
    [
        (0.50, 0.60, "15:10"),  # a tenth in 10 minutes: 30 points are left
        (0.60, 0.60, None),
        (0.60, 0.50, None),
        (0.5999, 0.60, None),  # more than a day
        (0.80, 0.91, None),  # full already: another check says so
    ],
)
def test_a_disk_that_fills(before: float, now: float, at: str | None) -> None:
    later = NOON + timedelta(hours=2, minutes=40)
    earlier = Health((), later - timedelta(minutes=10), disks={"a:1": before})
    checks = list(check_disks(earlier, Health((), later, disks={"a:1": now}), [row("a", "V5_3_2")], 90))
    assert len(checks) == (at is not None)
    assert all(f"90% at 2026-01-31 {at} UTC" in check.found for check in checks)


def test_a_lag_that_grows() -> None:
    groups = [
        GroupSummary(name, members, None, None, lag, (), ())
        for name, members, lag in (("idle", 0, 500), ("late", 2, 1700), ("new", 0, 900), ("at-work", 1, 140))
    ]
    before = Health((), NOON, lags={"idle": 400, "late": 500, "at-work": 50, "CID_RMQ_SYS_X": 0})
    now = Health((), NOON + timedelta(minutes=1), lags={group.group: group.lag for group in groups})
    assert [check.found for check in check_growth(before, now, groups)] == [
        "group late is 1,700 messages behind, 20.0 a second more",
        "group idle is 500 messages behind, 1.7 a second more; no member is connected",
    ]


def member(name: str, *topics: str) -> GroupMember:
    subscriptions = tuple(SubscriptionData(topic, "*") for topic in ("%RETRY%g", *topics))
    info = ConsumerRunningInfo(subscriptions=subscriptions) if topics else None
    return GroupMember(name, "x:1", "JAVA", "5.4.0", info)


def test_members_that_read_different_topics() -> None:
    assert list(check_subscriptions("g", [member("m1", "A", "B"), member("m2", "B", "A"), member("silent")])) == []
    (check,) = check_subscriptions("g", [member("m1", "A"), member("m2", "A", "B"), member("m3", "A")])
    assert (check.status, check.subject) == (FAIL, "g")
    assert check.found == "members of group g differ: m1 reads A; m2 reads A, B"


def test_what_two_looks_find(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    """A broker that is closed for writing, members that differ, and a dead letter, as a user sees them."""
    assert "closed for writing" in terminal.text("broker", "wipe-write-perm", "broker-b")
    try:
        results = checks(terminal, 1, "--over", "0.1")
    finally:
        terminal.text("broker", "add-write-perm", "broker-b")
    assert ("writes", FAIL, "broker-b is closed for writing") in results
    with Admin(nameserver=cluster.nameserver) as admin, Producer("G", nameserver=cluster.nameserver) as producer:
        admin.create_topic("%DLQ%shipping", queues=1)
        producer.send(Message("%DLQ%shipping", b"x"))
    letters = "group shipping has 1 dead letter of the last 24 hours"
    assert ("letters", WARN, letters) in checks(terminal, 0, "--over", "0.1")


def test_an_order_topic_in_a_cluster(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    terminal.text("topic", "order", "T", "broker-a:1", "broker-z:1")
    assert ("order", FAIL, "order topic T has queues at broker-z, without a master") in checks(terminal, 1)
    terminal.text("topic", "order", "T", "--delete")


def test_keys_that_may_not() -> None:
    """A broker that refuses has answered: it is reachable, and what it refuses is reported as that."""
    with EmbeddedCluster(settings=AUTH_5) as cluster:
        for request in member_requests():
            signed = Command(request.code, sign(request.ext, request.body, KEY, SECRET), request.body)
            assert ask(cluster.brokers["broker-a"], signed).code == 0
        unsigned = Terminal(cluster.nameserver)
        (row,) = unsigned.rows("broker", "list")
        assert (row["reachable"], row["version"]) == (True, None)
        assert "NO_PERMISSION" in str(row["error"])
        assert unsigned.text("broker", "list").splitlines()[1].split()[-1] == "refuses"
        assert [check[1] for check in checks(unsigned, 0) if check[0] == "broker"] == [WARN]
        for terminal in (
            unsigned,
            Terminal(cluster.nameserver, PYRMQ_ACCESS_KEY=MEMBER, PYRMQ_SECRET_KEY=READER_SECRET),
        ):
            assert checks(terminal, 1, "--max-lag", "0")[-1][:2] == ("lag", FAIL)
            top = json.loads(terminal.text("top", "--once", "--json"))
            assert (top["groups"], "NO_PERMISSION" in top["error"]) == ([], True)
            assert "NO_PERMISSION" in terminal.text("top", "--once").splitlines()[-1]
            refused = terminal.refused(1, "broker", "config", "broker-a", "--set", "fileReservedTime=9")
            assert "NO_PERMISSION" in refused


def test_top_once(terminal: Terminal) -> None:
    line = json.loads(terminal.text("top", "--once", "--json"))
    assert [broker["brokerName"] for broker in line["brokers"]] == ["broker-a", "broker-b"]
    assert line["groups"][0] == {"group": "readers", "members": 0, "lag": 2, "lagPerSecond": None, "topics": ["T"]}
    assert len(line["groups"]) == 1  # none of RocketMQ's own
    assert line["error"] is None
    head, *rest = terminal.text("top", "--once").splitlines()
    assert "2 brokers; in " in head
    assert head.endswith("1 groups, lag 2")
    assert ["readers", "0", "2", "T"] in [line.split() for line in rest]
    assert json.loads(terminal.text("top", "--once", "--json", "--groups", "0"))["groups"] == []


def test_top_goes_on_and_shows_how_fast_lags_change(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    process = started("top", "--json", "--interval", "0.1", "-n", cluster.nameserver, home=tmp_path)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["groups"][0]["lagPerSecond"] is None
    assert json.loads(process.stdout.readline())["groups"][0]["lagPerSecond"] == 0
    with Producer("G", nameserver=cluster.nameserver) as producer:
        producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-b", 0))
    assert any(json.loads(line)["groups"][0]["lagPerSecond"] > 0 for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
